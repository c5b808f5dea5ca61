import { Duplex } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { PortPiece } from "#core/ports.ts";

/** Where a connection leads. */
export interface PortTarget {
  readonly node: Node;
  readonly id: SandboxId;
  readonly port: number;
}

/** Resolves when the connection is made. Rejects with `PortFailed` when nobody takes it, with the signal's reason when that fires. */
export async function openPortStream(target: PortTarget, signal: AbortSignal): Promise<Duplex> {
  const stream = new PortStream(target);
  const abort = () => stream.destroy(signal.reason);
  if (signal.aborted) abort();
  else signal.addEventListener("abort", abort, { once: true });
  try {
    await stream.opened;
    return stream;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

interface Written {
  readonly chunk: Uint8Array;
  readonly taken: (error?: Error | null) => void;
}

/**
 * A connection to a port as a stream of Node, so that Node's own HTTP can speak over it. Its end and its finish are those of the
 * two directions; destroying it before both resets the connection, and a reset by the server is its error.
 */
class PortStream extends Duplex {
  /** Settles when the connection is made, or is not. */
  readonly opened: Promise<void>;
  readonly #pieces: AsyncIterator<PortPiece>;
  readonly #left = new AbortController();
  readonly #over = Promise.withResolvers<void>();
  #written: Written | undefined;
  #wake: (() => void) | undefined;
  #finishing = false;
  #pulling = false;

  constructor({ node, id, port }: PortTarget) {
    super({ allowHalfOpen: true });
    this.#over.promise.catch(() => undefined);
    // Between two owners nobody listens, and an error that nobody hears would end the process.
    this.on("error", () => undefined);
    this.#pieces = node.openPort(id, port, this.#outgoing(), this.#left.signal)[Symbol.asyncIterator]();
    this.opened = this.#open();
  }

  override _read(): void {
    if (!this.#pulling) void this.#pull();
  }

  override _write(chunk: Uint8Array, _encoding: string, taken: (error?: Error | null) => void): void {
    this.#written = { chunk, taken };
    this.#wake?.();
  }

  /** Both directions are over then: to be destroyed earlier would break off what is on its way. */
  override _final(done: (error?: Error | null) => void): void {
    this.#finishing = true;
    this.#wake?.();
    this.#over.promise.then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const reason = error ?? new SandboxError("Cancelled", "the connection was given up");
    this.#over.reject(reason);
    this.#left.abort(reason);
    this.#wake?.();
    done(error);
  }

  async #open(): Promise<void> {
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => aborted.reject(this.#left.signal.reason);
    this.#left.signal.addEventListener("abort", onAbort, { once: true });
    try {
      const first = await Promise.race([this.#pieces.next(), aborted.promise]);
      if (first.value !== "open") throw new SandboxError("Internal", "a connection that begins without being open");
    } catch (error) {
      this.destroy(error instanceof Error ? error : undefined);
      throw error;
    } finally {
      this.#left.signal.removeEventListener("abort", onAbort);
    }
  }

  async #pull(): Promise<void> {
    this.#pulling = true;
    try {
      for (;;) {
        const { value, done } = await this.#pieces.next();
        if (done === true) {
          this.#over.resolve();
          return;
        }
        // After the server's end nobody asks for more, and how it all ends is still to be heard.
        if (value === "end") this.push(null);
        // The bytes are ours until the next piece is asked for, and the stream keeps them for longer.
        else if (typeof value !== "string" && !this.push(Buffer.from(value))) break;
      }
      this.#pulling = false;
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** What was written, one piece after the other, at the pace of whoever takes it. */
  async *#outgoing(): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const written = this.#written;
      if (written !== undefined) {
        this.#written = undefined;
        yield written.chunk;
        written.taken();
      } else if (this.destroyed) {
        throw new SandboxError("Cancelled", "the connection was given up");
      } else if (this.#finishing) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
