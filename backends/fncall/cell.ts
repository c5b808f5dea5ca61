import { type CellRequest, type CellResult, CellResultReader, encodeCellRequest } from "#core/cells.ts";
import { SandboxError } from "#core/errors.ts";
import type { CellProgram, GuestLink, TaskSink } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";

/** Pieces of a request: as the agent takes them. */
const PIECE_BYTES = 64 * 1024;
const SIGTERM = 15;

/** What a cell is made of. */
export interface CellOptions {
  readonly link: GuestLink;
  /** Unique among the tasks of its agent. */
  readonly number: number;
  /** Of nobody else in the container. */
  readonly uid: number;
  readonly program: CellProgram;
  /** Of a program that is started before its call. */
  readonly env: Readonly<Record<string, string>>;
  readonly spaceBytes: number;
}

/** The place of one call: made before it, gone after it. */
export class Cell {
  readonly #link: GuestLink;
  readonly #number: number;
  readonly #reader = new CellResultReader();
  readonly #result = Promise.withResolvers<CellResult>();
  /** Settles when the keeper has ended: nothing of the cell is left then. True: it said so itself. */
  readonly ended: Promise<boolean>;
  readonly #end = Promise.withResolvers<boolean>();
  #said = "";

  private constructor({ link, number }: CellOptions) {
    this.#link = link;
    this.#number = number;
    this.ended = this.#end.promise;
    // Whoever waits for one of them hears of it; a cell that is closed unused has nobody who does.
    this.#result.promise.catch(() => undefined);
    void link.closed.then(() => this.#lost("its container is gone"));
  }

  /** Resolves when the next call would begin at once. */
  static async make(options: CellOptions): Promise<Cell> {
    const cell = new Cell(options);
    const { link, number, uid, program, env, spaceBytes } = options;
    await link.start(
      number,
      {
        action: { type: "cell", program, spaceBytes },
        user: String(uid),
        cwd: "/work",
        env,
        stdin: "pipe",
        timeLimitMs: undefined,
      },
      cell.#sink(),
    );
    return cell;
  }

  /**
   * Carries out the one call of this cell. Rejects with `SandboxLost` when the cell is, and with the signal's reason once the cell
   * has ended because of it.
   */
  async run(request: CellRequest, signal: AbortSignal): Promise<CellResult> {
    const pieces = encodeCellRequest(request);
    const stop = () => this.#link.signal(this.#number, SIGTERM, "leader");
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    try {
      // A program that ends without reading its input leaves the rest unsent.
      void this.#send(pieces).catch((error: unknown) => this.#lost("its request was not taken", error));
      const result = await this.#result.promise;
      signal.throwIfAborted();
      return result;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** Ends a cell that has had no call. */
  close(): void {
    this.#link.closeStdin(this.#number);
  }

  async #send(pieces: readonly Uint8Array[]): Promise<void> {
    let offset = 0;
    const small = pieces.reduce((sum, { length }) => sum + length, 0) <= PIECE_BYTES;
    for (const piece of small ? [Buffer.concat(pieces)] : pieces) {
      for (let at = 0; at < piece.length; at += PIECE_BYTES) {
        const part = piece.subarray(at, at + PIECE_BYTES);
        await this.#link.writeStdin(this.#number, offset, part);
        offset += part.length;
      }
    }
  }

  #sink(): TaskSink {
    return {
      output: (stream, offset, bytes) => {
        this.#link.acknowledge(this.#number, stream, offset + bytes.length);
        this.#take(stream, bytes);
      },
      ended: () => undefined,
      end: ({ code }) => {
        this.#link.forget(this.#number);
        this.#end.resolve(code === 0);
        this.#lost(`its keeper ended with ${code}${this.#said}`);
      },
    };
  }

  #take(stream: OutputStream, bytes: Uint8Array): void {
    if (stream === "stderr") {
      this.#said = `: ${Buffer.from(bytes).toString().slice(0, 200)}`;
      return;
    }
    try {
      const result = this.#reader.push(bytes);
      if (result !== undefined) this.#result.resolve(result);
    } catch (error) {
      this.#result.reject(error);
    }
  }

  /** No effect on a result that is there. */
  #lost(why: string, cause?: unknown): void {
    this.#result.reject(
      new SandboxError("SandboxLost", `a call was lost: ${why}`, cause === undefined ? {} : { cause }),
    );
    this.#end.resolve(false);
  }
}
