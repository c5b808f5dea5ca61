import { type CellRequest, type CellResult, CellResultReader, encodeCellRequest } from "#core/cells.ts";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { CellProgram, GuestLink, TaskSink } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";

/** Pieces of a request: as the agent takes them. */
const PIECE_BYTES = 64 * 1024;
/** So many of them fill the agent's window: it need not wait for the next while it says that it took one. */
const PIECES_UNDER_WAY = 4;
/** The agent keeps what is not acknowledged, up to four times as much. Less is acknowledged together with the next request. */
const UNACKNOWLEDGED_BYTES = 64 * 1024;
const SIGTERM = 15;
/**
 * What a keeper may take beyond the limit by the clock that it keeps itself: waits that are the node's own do not count there. One that
 * is still silent then has been taken over, or hangs.
 */
const SILENCE_MS = 60_000;

/** What a keeper makes its cells of. */
export interface KeeperOptions {
  readonly link: GuestLink;
  /** Unique among the tasks of its agent. */
  readonly number: number;
  /** The user of its first call; the others have the ids behind it. */
  readonly uid: number;
  /** How many it serves. */
  readonly calls: number;
  readonly program: CellProgram;
  /** Of a program that is started before its call. */
  readonly env: Readonly<Record<string, string>>;
  readonly spaceBytes: number;
  readonly clock: Clock;
}

/** How a keeper is after a call. `ended`: it serves no more, and nothing is left. `unclean`: something may be. */
export type KeeperState = "ready" | "ended" | "unclean";

/** Makes cells, one after the other, and carries out one call in each. */
export class Keeper {
  readonly #link: GuestLink;
  readonly #number: number;
  readonly #clock: Clock;
  readonly #reader = new CellResultReader();
  #result = Promise.withResolvers<CellResult>();
  #next = Promise.withResolvers<KeeperState>();
  #sentBytes = 0;
  #receivedBytes = 0;
  #acknowledgedBytes = 0;
  #said = "";
  #over: { readonly state: KeeperState; readonly why: string } | undefined;

  private constructor({ link, number, clock }: KeeperOptions) {
    this.#link = link;
    this.#number = number;
    this.#clock = clock;
    void link.closed.then(() => this.#end("unclean", "its container is gone"));
  }

  /** Resolves when the first call would begin at once. */
  static async start(options: KeeperOptions): Promise<Keeper> {
    const keeper = new Keeper(options);
    const { link, number, uid, program, calls, env, spaceBytes } = options;
    await link.start(
      number,
      {
        action: { type: "cell", program, calls, spaceBytes },
        user: String(uid),
        cwd: "/work",
        env,
        stdin: "pipe",
        timeLimitMs: undefined,
      },
      keeper.#sink(),
    );
    return keeper;
  }

  /** How it is after its last call. Never rejects. */
  get next(): Promise<KeeperState> {
    return this.#next.promise;
  }

  /**
   * Carries out one call; the one before has been followed by `ready`. Rejects with `SandboxLost` when the keeper is lost, and with the
   * signal's reason once the cell has ended because of it.
   */
  async run(request: CellRequest, signal: AbortSignal): Promise<CellResult> {
    const pieces = encodeCellRequest(request);
    this.#reader.expect(request);
    this.#result = Promise.withResolvers<CellResult>();
    this.#next = Promise.withResolvers<KeeperState>();
    if (this.#over !== undefined) this.#end(this.#over.state, this.#over.why);
    const silentMs = request.limits.wallMs + SILENCE_MS;
    using _limit = this.#clock.after(silentMs, () => this.#end("unclean", `no word for ${silentMs / 1000} s`));
    const stop = () => this.#link.signal(this.#number, SIGTERM, "leader");
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    try {
      this.#acknowledge();
      // Whatever stops the agent from taking it ends the keeper, too.
      void this.#send(pieces).catch(() => undefined);
      const result = await this.#result.promise;
      signal.throwIfAborted();
      return result;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** Ends a keeper that has no call. */
  close(): void {
    this.#link.closeStdin(this.#number);
  }

  async #send(pieces: readonly Uint8Array[]): Promise<void> {
    const small = pieces.reduce((sum, { length }) => sum + length, 0) <= PIECE_BYTES;
    const underWay: Promise<void>[] = [];
    for (const piece of small ? [Buffer.concat(pieces)] : pieces) {
      for (let at = 0; at < piece.length; at += PIECE_BYTES) {
        const part = piece.subarray(at, at + PIECE_BYTES);
        underWay.push(this.#link.writeStdin(this.#number, this.#sentBytes, part));
        this.#sentBytes += part.length;
        if (underWay.length === PIECES_UNDER_WAY) await underWay.shift();
      }
    }
    await Promise.all(underWay);
  }

  #acknowledge(): void {
    if (this.#receivedBytes === this.#acknowledgedBytes) return;
    this.#acknowledgedBytes = this.#receivedBytes;
    this.#link.acknowledge(this.#number, "stdout", this.#receivedBytes);
  }

  #sink(): TaskSink {
    return {
      output: (stream, offset, bytes) => this.#take(stream, offset, bytes),
      ended: () => undefined,
      end: ({ code }) => {
        this.#link.forget(this.#number);
        this.#end(code === 0 ? "ended" : "unclean", `its keeper ended with ${code}${this.#said}`);
      },
    };
  }

  #take(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    if (stream === "stderr") {
      this.#link.acknowledge(this.#number, stream, offset + bytes.length);
      this.#said = `: ${Buffer.from(bytes).toString().slice(0, 200)}`;
      return;
    }
    // Of one that is given up nothing is read, nor acknowledged: it can send no more.
    if (this.#over !== undefined) return;
    this.#receivedBytes = offset + bytes.length;
    if (this.#receivedBytes - this.#acknowledgedBytes > UNACKNOWLEDGED_BYTES) this.#acknowledge();
    try {
      for (const news of this.#reader.push(bytes)) {
        if (news.type === "ready") this.#next.resolve("ready");
        else this.#result.resolve(news.result);
      }
    } catch (error) {
      this.#result.reject(error);
      // A keeper that refuses a call says so in its own way, and ends.
      const isRefusal = error instanceof SandboxError && error.kind === "SandboxLimit";
      if (!isRefusal) this.#end("unclean", "its keeper said what no keeper says");
    }
  }

  /** No effect on a result that is there. */
  #end(state: KeeperState, why: string): void {
    this.#over ??= { state, why };
    // Nobody hears of the end of a keeper that has no call.
    this.#result.promise.catch(() => undefined);
    this.#result.reject(new SandboxError("SandboxLost", `a call was lost: ${why}`));
    this.#next.resolve(state);
  }
}
