import type { WebSocket } from "ws";
import type { AttachEvent } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";

/** A connection whose client shows no life for two of these is dead. */
const BEAT_MS = 15_000;

/** So much may be on its way to a client that asks without reading what it is told: then it is cut off. */
const UNREAD_BYTES = 4 * 1024 * 1024;

/** One WebSocket: sends at the pace of the connection, and notices when nobody is there any more. */
export class MessageSocket {
  readonly #socket: WebSocket;
  readonly #left = new AbortController();
  readonly #beat: NodeJS.Timeout;
  #alive = true;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    this.#beat = setInterval(() => this.#check(), BEAT_MS);
    this.#beat.unref();
    socket.on("pong", () => {
      this.#alive = true;
    });
    socket.on("error", () => socket.terminate());
    socket.once("close", () => {
      clearInterval(this.#beat);
      this.#left.abort(new SandboxError("Cancelled", "the client left"));
    });
  }

  /** Fires when the connection has ended. */
  get signal(): AbortSignal {
    return this.#left.signal;
  }

  /** Calls back with each message: bytes, or the text of a request. */
  listen(onBytes: (bytes: Buffer) => void, onText: (text: string) => void): void {
    this.#socket.on("message", (data, isBinary) => {
      this.#alive = true;
      // With the default binary type a message is one buffer.
      const bytes = data as Buffer;
      if (isBinary) onBytes(bytes);
      else onText(bytes.toString("utf8"));
    });
  }

  /** Resolves when the connection has taken the bytes; rejects when it has ended. */
  send(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.send(bytes, (error) => (error === undefined || error === null ? resolve() : reject(error)));
    });
  }

  /** Says it when the connection is still there, and the client takes what it is told. */
  tell(event: AttachEvent): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > UNREAD_BYTES) this.#socket.terminate();
    else this.#socket.send(JSON.stringify(event));
  }

  close(code: number): void {
    this.#socket.close(code);
  }

  #check(): void {
    if (!this.#alive) {
      this.#socket.terminate();
      return;
    }
    this.#alive = false;
    this.#socket.ping();
    // Browsers see no pings: to them only a message shows that the server is there.
    this.tell({ type: "alive" });
  }
}
