import type { AttachEvent, OutputStream } from "#api/index.ts";
import { AttachedInput } from "./attached-input.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { type EndedCommand, hasEnded } from "./ended.ts";
import { DsecError, errorFromBody, TransportError } from "./errors.ts";
import type { Patience } from "./patience.ts";

/** How to attach. */
export interface AttachOptions extends CallOptions {
  /** First byte wanted of each stream; 0 unless said otherwise. */
  readonly stdout?: number;
  readonly stderr?: number;
  /** Takes the input: whoever wrote to it before is told and can write no more. */
  readonly input?: boolean;
  /** Hold the command back rather than drop bytes that this reader has not had. */
  readonly hold?: boolean;
}

/** What an attachment brings. A gap is a run of bytes that were dropped to hold the output cap. */
export type Attached =
  | { readonly type: "output"; readonly stream: OutputStream; readonly offset: number; readonly bytes: Uint8Array }
  | { readonly type: "gap"; readonly stream: OutputStream; readonly from: number; readonly to: number }
  | { readonly type: "input-lost" }
  | { readonly type: "exit"; readonly command: EndedCommand };

const STREAMS = ["stdout", "stderr"] as const satisfies readonly OutputStream[];
const PROTOCOL = "dsec.attach";
const HEAD_BYTES = 9;
/** Output of each stream that may be here unread. */
const WINDOW_BYTES = 1024 * 1024;
const ACKNOWLEDGE_BYTES = WINDOW_BYTES / 4;
/** The server says something every fifteen seconds. */
const SILENCE_MS = 45_000;
/** For the first connection: what takes no WebSockets on the way, a proxy say, must show. */
const FIRST_CONNECTION_MS = 10_000;

/**
 * A command's output, and perhaps its input, over one connection that is made again from the same byte when it breaks.
 * Iterating ends when the command has ended and everything it had written by then was handed out.
 */
export class Attachment implements AsyncIterable<Attached>, AsyncDisposable {
  readonly #caller: Caller;
  readonly #path: string;
  readonly #options: AttachOptions;
  readonly #input: AttachedInput;
  readonly #patience: Patience;
  /** One past the last byte that was handed out, and that the server was told of. */
  readonly #read: Record<OutputStream, number>;
  readonly #acknowledged: Record<OutputStream, number>;
  #socket: WebSocket | undefined;
  #queue: Attached[] = [];
  #wake: () => void = () => undefined;
  #ended: EndedCommand | undefined;
  #failure: unknown;
  #closed = false;

  /** Made by `Command.attach`. */
  constructor(caller: Caller, commandPath: string, options: AttachOptions) {
    const { stdout = 0, stderr = 0 } = options;
    this.#caller = caller;
    this.#path = commandPath;
    this.#options = options;
    this.#patience = caller.patience({ signal: options.signal });
    this.#read = { stdout, stderr };
    this.#acknowledged = { stdout, stderr };
    this.#input = new AttachedInput(options.input === true, (message) => this.#socket?.send(message));
    options.signal?.addEventListener("abort", () => this.#fail(options.signal?.reason), { once: true });
  }

  /** Resolves when the first connection is made; later ones are made as needed. */
  async open(): Promise<void> {
    this.#options.signal?.throwIfAborted();
    const { signal } = this.#options;
    await this.#connect(this.#caller.patience({ signal, timeoutMs: FIRST_CONNECTION_MS }));
  }

  /** Types it, or feeds it: resolves when the sandbox has taken the bytes. Rejects when the input is another's. */
  write(data: string | Uint8Array): Promise<void> {
    return this.#input.write(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  /** Ends the input after what was written. A terminal is typed its end-of-file character. */
  closeInput(): void {
    this.#input.close();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Attached, void, undefined> {
    try {
      while (!this.#over) {
        const next = this.#queue.shift();
        if (next !== undefined) {
          // Before it is handed out: while the reader works on it the connection may break, and it must not come again.
          this.#taken(next);
          yield next;
        } else if (this.#failure !== undefined) {
          throw this.#failure;
        } else if (this.#closed) {
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  /** Leaves; the command goes on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    this.#socket?.close();
    this.#socket = undefined;
    this.#input.fail(new DsecError("Cancelled", "the attachment is closed"));
    this.#wake();
  }

  get #over(): boolean {
    const ended = this.#ended;
    if (ended === undefined || this.#queue.some(({ type }) => type === "exit")) return false;
    return STREAMS.every((stream) => this.#read[stream] >= ended[stream].seen);
  }

  #taken(event: Attached): void {
    if (event.type === "exit" || event.type === "input-lost") return;
    const { stream } = event;
    this.#read[stream] = event.type === "gap" ? event.to : event.offset + event.bytes.byteLength;
    if (this.#read[stream] - this.#acknowledged[stream] < ACKNOWLEDGE_BYTES) return;
    this.#acknowledged[stream] = this.#read[stream];
    this.#say({ type: "ack", stream, offset: this.#read[stream] });
  }

  #say(request: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(request));
  }

  /** Resolves when a connection stands. */
  async #connect(patience: Patience): Promise<void> {
    for (;;) {
      try {
        await this.#connectOnce();
        return;
      } catch (error) {
        if (this.#closed) throw error;
        await patience.broke(error);
      }
    }
  }

  /** Whoever takes connections only to end them is met as one who takes none. */
  async #connectAgain(): Promise<void> {
    await this.#patience.broke(new TransportError("the connection broke"));
    await this.#connect(this.#patience);
  }

  #connectOnce(): Promise<void> {
    // What is here unread comes again: it is not more than a window.
    this.#queue = this.#queue.filter(({ type }) => type === "input-lost");
    Object.assign(this.#acknowledged, this.#read);
    const input = this.#input.wanted ? "take" : "none";
    const query = { ...this.#read, input, hold: this.#options.hold ?? false, window: WINDOW_BYTES };
    const socket = this.#caller.socket(`${this.#path}/attach`, query, PROTOCOL);
    socket.binaryType = "arraybuffer";
    const heard = watchSilence(socket);
    return new Promise((resolve, reject) => {
      let open = false;
      socket.addEventListener("open", () => {
        open = true;
        this.#socket = socket;
        this.#patience.answered();
        if (this.#closed) socket.close();
        resolve();
      });
      socket.addEventListener("message", ({ data }) => {
        heard.refresh();
        this.#patience.progressed();
        if (data instanceof ArrayBuffer) this.#output(new Uint8Array(data));
        else this.#event(JSON.parse(String(data)) as AttachEvent);
      });
      // A socket that fails says `error`, then `close`.
      socket.addEventListener("error", () => undefined);
      socket.addEventListener("close", () => {
        clearTimeout(heard);
        if (open) this.#broken(socket);
        else this.#explain().catch(reject);
      });
    });
  }

  /** Why a connection was not accepted: a WebSocket does not tell, the same question over HTTP does. */
  async #explain(): Promise<never> {
    await this.#caller.json({ method: "GET", path: this.#path, signal: this.#options.signal, repeatable: false });
    throw new TransportError("the server did not accept the connection");
  }

  #broken(socket: WebSocket): void {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    if (this.#closed || this.#failure !== undefined) return;
    if (this.#ended !== undefined && STREAMS.every((stream) => this.#received(stream) >= this.#endOf(stream))) return;
    this.#input.disconnected();
    this.#connectAgain().catch((error: unknown) => this.#fail(error));
  }

  #received(stream: OutputStream): number {
    return this.#queue.reduce((most, event) => {
      if (event.type === "output" && event.stream === stream) return event.offset + event.bytes.byteLength;
      return event.type === "gap" && event.stream === stream ? event.to : most;
    }, this.#read[stream]);
  }

  #endOf(stream: OutputStream): number {
    return this.#ended?.[stream].seen ?? Number.POSITIVE_INFINITY;
  }

  #output(message: Uint8Array): void {
    const offset = Number(new DataView(message.buffer).getBigUint64(1, true));
    const bytes = message.subarray(HEAD_BYTES);
    this.#put({ type: "output", stream: message[0] === 0 ? "stdout" : "stderr", offset, bytes });
  }

  #event(event: AttachEvent): void {
    switch (event.type) {
      case "input-taken":
        this.#input.taken(event.offset);
        break;
      case "input-ack":
        this.#input.acknowledged(event.offset);
        break;
      case "input-lost":
        this.#input.lost();
        this.#put({ type: "input-lost" });
        break;
      case "refused":
        if (event.request === "input") this.#input.fail(errorFromBody({ error: event.error }));
        break;
      case "gap":
        this.#put({ type: "gap", stream: event.stream, from: event.from, to: event.to });
        break;
      case "exit":
        this.#exit(event.command);
        break;
      case "error":
        this.#refused(errorFromBody({ error: event.error }));
        break;
      default:
        // `alive` has done its work by coming, `end` is implied by what was seen.
        break;
    }
  }

  #exit(command: Extract<AttachEvent, { type: "exit" }>["command"]): void {
    if (!hasEnded(command) || this.#ended !== undefined) return;
    this.#ended = command;
    this.#input.fail(new DsecError("FailedPrecondition", "the command has ended and takes no more input"));
    this.#put({ type: "exit", command });
  }

  /** A server that goes away for a while is met as a broken connection. */
  #refused(error: Error & { readonly kind: string }): void {
    if (error.kind !== "Unavailable") this.#fail(error);
  }

  #put(event: Attached): void {
    this.#queue.push(event);
    this.#wake();
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    this.#input.fail(error);
    this.#socket?.close();
    this.#wake();
  }
}

/** Ends a connection over which nothing comes any more. */
function watchSilence(socket: WebSocket): NodeJS.Timeout {
  const timer = setTimeout(() => socket.close(), SILENCE_MS);
  timer.unref();
  return timer;
}
