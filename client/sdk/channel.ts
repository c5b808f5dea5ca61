import type { Connection } from "./connection.ts";
import { TransportError } from "./errors.ts";

/** More than this written and not sent: whoever writes waits. */
const MOST_UNSENT_BYTES = 1024 * 1024;
const LOOK_MS = 20;

/** A WebSocket of bytes as a connection. `explain` is asked why one was not accepted: a WebSocket does not tell. */
export async function channelOver(socket: WebSocket, explain: () => Promise<unknown>): Promise<Connection> {
  socket.binaryType = "arraybuffer";
  const channel = new Channel(socket);
  const opened = Promise.withResolvers<boolean>();
  socket.addEventListener("open", () => opened.resolve(true));
  socket.addEventListener("close", () => opened.resolve(false));
  if (await opened.promise) return channel;
  await explain();
  throw new TransportError("the server did not accept the connection");
}

class Channel implements Connection {
  readonly #socket: WebSocket;
  readonly #received: Uint8Array[] = [];
  #end: "clean" | "broken" | undefined;
  #wake: () => void = () => undefined;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      if (data instanceof ArrayBuffer) this.#received.push(new Uint8Array(data));
      this.#wake();
    });
    // A socket that fails says `error`, then `close`.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", ({ code }) => {
      this.#end ??= code === 1000 ? "clean" : "broken";
      this.#wake();
    });
  }

  async write(data: string | Uint8Array): Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new TransportError("the connection broke");
    // A view of shared memory cannot be sent, and nobody has one here.
    this.#socket.send(typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data));
    while (this.#socket.bufferedAmount > MOST_UNSENT_BYTES && this.#socket.readyState === WebSocket.OPEN) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** A channel has one end for both sides. */
  end(): void {
    this.#socket.close(1000);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const bytes = this.#received.shift();
      if (bytes !== undefined) yield bytes;
      else if (this.#end === "clean") return;
      else if (this.#end === "broken") throw new TransportError("the connection broke");
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  [Symbol.dispose](): void {
    this.#end ??= "clean";
    this.#socket.close(1000);
    this.#wake();
  }
}
