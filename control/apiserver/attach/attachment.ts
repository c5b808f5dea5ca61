import type { Static } from "typebox";
import { type AttachQuery, AttachRequest } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { OutputStream } from "#core/sandbox.ts";
import { failureOf } from "../failure.ts";
import { parseJson } from "../json.ts";
import { validator } from "../validate.ts";
import { commandView } from "../views.ts";
import { InputFeed } from "./input-feed.ts";
import type { MessageSocket } from "./socket.ts";
import type { AttachTarget } from "./target.ts";
import { Window } from "./window.ts";

/** How long the node holds one question for the command's end. */
const WAIT_MS = 60_000;
const STREAMS = ["stdout", "stderr"] as const satisfies readonly OutputStream[];
/** Closing codes of RFC 6455. */
const CLOSED = 1000;
const FAILED = 1011;

const checkRequest = validator(AttachRequest, "body");

/** One attachment from its acceptance to its end: the end of the command and of both streams, or of the connection. */
export class Attachment {
  readonly #target: AttachTarget;
  readonly #query: Static<typeof AttachQuery>;
  readonly #socket: MessageSocket;
  readonly #windows: Readonly<Record<OutputStream, Window>>;
  readonly #feed: InputFeed;
  readonly #failed = Promise.withResolvers<never>();

  constructor(target: AttachTarget, query: Static<typeof AttachQuery>, socket: MessageSocket) {
    const { stdout = 0, stderr = 0, window } = query;
    this.#target = target;
    this.#query = query;
    this.#socket = socket;
    this.#windows = { stdout: new Window(stdout, window), stderr: new Window(stderr, window) };
    this.#feed = new InputFeed(target, socket);
  }

  /** Never rejects: the client is told what went wrong. */
  async run(): Promise<void> {
    const { signal } = this.#socket;
    signal.addEventListener("abort", () => this.#failed.reject(signal.reason), { once: true });
    this.#socket.listen(
      (bytes) => this.#attempt(() => this.#feed.push(bytes)),
      (text) => this.#attempt(() => this.#request(text)),
    );
    try {
      const work = [...STREAMS.map((stream) => this.#pump(stream)), this.#watchEnd()];
      if (this.#query.input === "take") this.#feed.take().catch((error: unknown) => this.#failed.reject(error));
      await Promise.race([Promise.all(work), this.#failed.promise]);
      this.#socket.close(CLOSED);
    } catch (error) {
      this.#socket.tell({ type: "error", ...failureOf(error).body });
      this.#socket.close(FAILED);
    }
  }

  /** A message that breaks the rules ends the attachment. */
  #attempt(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#failed.reject(error);
    }
  }

  async #pump(stream: OutputStream): Promise<void> {
    const { id, node, command } = this.#target;
    const { signal } = this.#socket;
    const window = this.#windows[stream];
    let expected = window.sent;
    const read = { stream, offset: expected, follow: true, hold: this.#query.hold ?? false };
    for await (const { offset, bytes } of node.readOutput(id, command, read, signal)) {
      if (offset > expected) this.#socket.tell({ type: "gap", stream, from: expected, to: offset });
      expected = offset + bytes.length;
      await window.room(offset, bytes.length, signal);
      await this.#socket.send(encodeOutput(stream, offset, bytes));
    }
    this.#socket.tell({ type: "end", stream, offset: expected });
  }

  async #watchEnd(): Promise<void> {
    const { id, node, command } = this.#target;
    for (;;) {
      const info = await node.waitCommand(id, command, WAIT_MS, this.#socket.signal);
      if (info.status === undefined) continue;
      // A writer hears what became of its input before it hears that no more is taken.
      await this.#feed.settled;
      this.#socket.tell({ type: "exit", command: commandView(info) });
      return;
    }
  }

  #request(text: string): void {
    const request = checkRequest(parseJson(Buffer.from(text))) as AttachRequest;
    const { id, node, command } = this.#target;
    const { signal } = this.#socket;
    switch (request.type) {
      case "ack":
        this.#windows[request.stream].acknowledge(request.offset);
        break;
      case "resize":
        this.#answer(request, node.resizeTerminal(id, command, { rows: request.rows, cols: request.cols }, signal));
        break;
      case "signal":
        this.#answer(request, node.signalCommand(id, command, String(request.signal), signal));
        break;
      case "close-input":
        this.#feed.close();
        break;
      default:
        throw new SandboxError("InvalidArgument", "a request of an unknown type");
    }
  }

  #answer({ type }: AttachRequest, acting: Promise<void>): void {
    acting.catch((error: unknown) => this.#socket.tell({ type: "refused", request: type, ...failureOf(error).body }));
  }
}

const HEAD_BYTES = 9;

function encodeOutput(stream: OutputStream, offset: number, bytes: Uint8Array): Uint8Array {
  const message = Buffer.allocUnsafe(HEAD_BYTES + bytes.length);
  message[0] = STREAMS.indexOf(stream);
  message.writeBigUInt64LE(BigInt(offset), 1);
  message.set(bytes, HEAD_BYTES);
  return message;
}
