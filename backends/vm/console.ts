import { connect, type Socket } from "node:net";
import type { ComputerStream } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";

/** Kept of what the console said, for those who come later. */
const KEPT_BYTES = 64 * 1024;
/** A viewer that takes nothing is let go when so much waits for it: the computer must not. */
const WAITING_BYTES = 1024 * 1024;

/** The first serial port of a computer: read all the time, so that nobody has to be there for it to go on. */
export class Console {
  readonly #socket: Socket;
  readonly #viewers = new Set<Viewer>();
  #kept: Buffer = Buffer.alloc(0);
  #open = true;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (bytes) => this.#hear(bytes));
    // What a broken connection means shows in its end.
    socket.on("error", () => {});
    socket.once("close", () => {
      this.#open = false;
      for (const viewer of this.#viewers) viewer.end();
    });
  }

  /** Begins with what was kept. */
  view(): ComputerStream {
    const viewer = new Viewer(this.#kept, () => this.#viewers.delete(viewer));
    if (this.#open) this.#viewers.add(viewer);
    else viewer.end();
    return {
      bytes: viewer,
      write: (bytes) => writeTo(this.#socket, bytes),
      [Symbol.dispose]: () => viewer.end(),
    };
  }

  close(): void {
    this.#socket.destroy();
  }

  #hear(bytes: Buffer): void {
    this.#kept = Buffer.concat([this.#kept, bytes]).subarray(-KEPT_BYTES);
    for (const viewer of this.#viewers) viewer.push(bytes);
  }
}

/** Reaches a socket of a computer. `SandboxLost` when nobody listens there. */
export async function connectSocket(path: string): Promise<Socket> {
  const socket = connect(path);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.once("connect", resolve);
  socket.once("error", reject);
  try {
    await promise;
    return socket;
  } catch (error) {
    throw new SandboxError("SandboxLost", "the computer has ended", { cause: error });
  }
}

/** Resolves when there is room for more, or nobody takes it any more. */
export async function writeTo(socket: Socket, bytes: Uint8Array): Promise<void> {
  if (socket.destroyed || socket.write(bytes)) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.once("drain", resolve);
  socket.once("close", resolve);
  await promise;
  socket.off("drain", resolve);
  socket.off("close", resolve);
}

/** One who sees what the console says, at a pace of its own. */
class Viewer implements AsyncIterable<Uint8Array> {
  readonly #left: () => void;
  #waiting: Buffer[];
  #bytes: number;
  #ended = false;
  #wake: () => void = () => undefined;

  constructor(kept: Buffer, left: () => void) {
    this.#waiting = kept.length > 0 ? [kept] : [];
    this.#bytes = kept.length;
    this.#left = left;
  }

  push(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#bytes > WAITING_BYTES) this.end();
    else this.#waiting.push(bytes);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#left();
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (;;) {
        const bytes = Buffer.concat(this.#waiting);
        this.#waiting = [];
        this.#bytes = 0;
        if (bytes.length > 0) yield bytes;
        else if (this.#ended) return;
        else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      this.end();
    }
  }
}
