import { BufferPool } from "#core/bytes/buffer-pool.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink, TaskEnd, TaskSink, TaskSpec } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";
import { startError } from "#edge/commands/start-error.ts";
import { errnoError } from "#edge/files/errno.ts";
import { Interruption } from "#edge/waiting/interruption.ts";

/** Output taken by the consumer before the agent is told: a frame for every chunk would be as many again. */
const ACKNOWLEDGE_BYTES = 64 * 1024;

/** Where output waits for its reader, in all operations. */
const BUFFERS = new BufferPool(64 * 1024);

/** Of a name in an error: it is for people. */
const CULPRIT_BYTES = 300;

interface Chunk {
  readonly bytes: Uint8Array;
  readonly done: (() => void) | undefined;
}

/** Pieces given to the agent before the first of them is taken: with a single one, each would cost a way there and back. */
const PIECES_AHEAD = 4;

/**
 * One file operation in the agent. Its output is an async iterable with the agent's window as its whole buffer; its end is the
 * errno as a typed error. Disposing drops the task wherever it is: an unfinished write leaves the old file.
 */
export class FileTask implements TaskSink, AsyncDisposable {
  readonly number: number;
  readonly #link: GuestLink;
  readonly #what: string;
  readonly #signal: AbortSignal;
  #chunks: Chunk[] = [];
  #received = 0;
  #taken = 0;
  #acknowledged = 0;
  /** Writes that the agent has not taken yet, in order. */
  #untaken: Promise<void>[] = [];
  #outcome: { readonly error: unknown } | undefined;
  #culprit: string | undefined;
  readonly #over = new Interruption();
  #wake: (() => void) | undefined;

  private constructor(
    link: GuestLink,
    number: number,
    options: { readonly what: string; readonly signal: AbortSignal },
  ) {
    this.#link = link;
    this.number = number;
    this.#what = options.what;
    this.#signal = options.signal;
    this.#signal.addEventListener("abort", this.#onAbort, { once: true });
    void link.closed.then(() => this.#settle(connectionLost()));
  }

  /** Resolves when the agent has begun. `what` says in words what is done, for errors. */
  static async start(
    link: GuestLink,
    number: number,
    task: TaskSpec,
    options: { readonly what: string; readonly signal: AbortSignal },
  ): Promise<FileTask> {
    options.signal.throwIfAborted();
    const file = new FileTask(link, number, options);
    try {
      await link.start(number, task, file);
    } catch (error) {
      file.#signal.removeEventListener("abort", file.#onAbort);
      throw startError(error, task);
    }
    return file;
  }

  output(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    if (stream !== "stdout") {
      this.#link.acknowledge(this.number, stream, offset + bytes.length);
      // Operations on trees name here the entry that stopped them.
      if (offset === 0) this.#culprit = Buffer.from(bytes.subarray(0, CULPRIT_BYTES)).toString("utf8");
      return;
    }
    // The buffer belongs to the link again when this call returns.
    const { buffer, done } = BUFFERS.take(bytes.length);
    buffer.set(bytes);
    this.#chunks.push({ bytes: buffer.subarray(0, bytes.length), done });
    this.#received = offset + bytes.length;
    this.#wake?.();
  }

  ended(): void {}

  end(end: TaskEnd): void {
    if (end.cause === "exited" && end.code === 0) this.#settle(undefined);
    else if (end.cause === "exited" && end.code !== undefined)
      this.#settle(errnoError(end.code, this.#what, this.#culprit));
    else this.#settle(killed(this.#what, end));
  }

  /** What the operation puts out; ends, or throws, when it does. A piece is the reader's until it asks for the next. */
  async *read(): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const chunks = this.#chunks;
      this.#chunks = [];
      for (const chunk of chunks) {
        this.#taken += chunk.bytes.length;
        this.#acknowledge();
        yield chunk.bytes;
        chunk.done?.();
      }
      if (this.#chunks.length > 0) continue;
      if (this.#outcome !== undefined) break;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#outcome.error !== undefined) throw this.#outcome.error;
  }

  /** Resolves when more may follow; a few pieces are under way then. Rejects when the operation ends before its input. */
  async write(offset: number, bytes: Uint8Array): Promise<void> {
    // The agent answers nothing for a task that has ended: its end is the answer then.
    const taken = this.#over.guard(this.#link.writeStdin(this.number, offset, bytes));
    taken.catch(() => undefined);
    this.#untaken.push(taken);
    if (this.#untaken.length > PIECES_AHEAD) await this.#untaken.shift();
  }

  /** Closes the input properly and resolves with the end of the operation. */
  async finish(): Promise<void> {
    await Promise.all(this.#untaken);
    this.#link.closeStdin(this.number);
    for await (const _ of this.read()) {
      // An operation that writes puts nothing out.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#link.forget(this.number);
  }

  readonly #onAbort = () => this.#settle(this.#signal.reason);

  #settle(error: unknown): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = { error };
    this.#over.fire(error ?? new SandboxError("Internal", `${this.#what}: it ended before its input did`));
    this.#wake?.();
  }

  #acknowledge(): void {
    if (this.#taken - this.#acknowledged < ACKNOWLEDGE_BYTES && this.#taken < this.#received) return;
    this.#acknowledged = this.#taken;
    this.#link.acknowledge(this.number, "stdout", this.#taken);
  }
}

function killed(what: string, end: TaskEnd): SandboxError {
  return new SandboxError("SandboxLimit", `${what}: its process was ended by ${end.signal ?? end.cause}`, {
    hint: "the sandbox may be out of memory, or a program in it killed the helper",
  });
}

function connectionLost(): SandboxError {
  return new SandboxError("Unavailable", "the connection to the sandbox broke during a file operation", {
    hint: "ask again",
  });
}
