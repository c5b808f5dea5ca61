import type { Duplex } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import type { GuestHello, GuestLink, TaskReport, TaskSink, TaskSpec } from "#core/guest.ts";
import type { OutputStream, TerminalSize } from "#core/sandbox.ts";
import {
  FRAME,
  FRAME_HEADER_BYTES,
  type Frame,
  FrameDecoder,
  getOffset,
  malformed,
  newFrame,
  PROTOCOL_VERSION,
  putOffset,
} from "./frames.ts";
import { type InputChannel, InputSender } from "./input.ts";
import { decodeReport } from "./report.ts";
import { encodeSize, encodeStart } from "./start.ts";
import { streamCode, TaskFollower } from "./task.ts";

const OFFSET_BYTES = 8;
/** Tasks that an agent can know. */
const TASK_LIMIT = 1024;
/** A task of which nothing more can come is forgotten with what is sent next, or after so long, or with so many others. */
const FORGET_WITHIN_MS = 100;
const FORGET_TOGETHER = 64;
/** An offset that means "wherever the agent is". */
const ANY_OFFSET = Buffer.alloc(OFFSET_BYTES, 0xff);
const START_OF_STREAMS: Readonly<Record<OutputStream, number>> = { stdout: 0, stderr: 0 };

interface Listing {
  readonly reports: TaskReport[];
  readonly resolve: (reports: readonly TaskReport[]) => void;
  readonly reject: (error: Error) => void;
}

interface Ping {
  readonly timer: NodeJS.Timeout;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** The edge's end of one connection: `connect.ts` makes it and feeds it what arrives. */
export class AgentLink implements GuestLink {
  readonly closed: Promise<void>;
  /** What the agent did wrong, when that is why the link closed. */
  failure: SandboxError | undefined;
  readonly #stream: Duplex;
  readonly #onGreeted: (link: AgentLink) => void;
  readonly #decoder = new FrameDecoder((frame) => this.#take(frame));
  readonly #tasks = new Map<number, TaskFollower>();
  readonly #pings = new Map<number, Ping>();
  /** The first is under way at the agent; the others wait for its end. */
  readonly #listings: Listing[] = [];
  /** Acknowledgements that wait for the agent to read, the latest of each stream. */
  readonly #unsaid = new Map<
    string,
    { readonly number: number; readonly stream: OutputStream; readonly offset: number }
  >();
  /** Frames that let the agent forget, and that nothing waits for: a write of their own would wake it for nothing. */
  readonly #forgets: Buffer[] = [];
  #forgetTimer: NodeJS.Timeout | undefined;
  #hello: GuestHello | undefined;
  #inputWindowBytes = 0;
  #lastPing = 0;
  #open = true;

  constructor(stream: Duplex, onGreeted: (link: AgentLink) => void) {
    this.#stream = stream;
    this.#onGreeted = onGreeted;
    // A lost connection is the end of the link, not an error of its own: `closed` tells.
    stream.on("error", () => stream.destroy());
    stream.on("end", () => stream.destroy());
    stream.on("drain", () => this.#sayUnsaid());
    this.closed = new Promise((resolve) => {
      stream.once("close", () => {
        this.#lose();
        resolve();
      });
    });
    const frame = newFrame(FRAME.hello, 0, 0, 4);
    frame.writeUInt32LE(PROTOCOL_VERSION, FRAME_HEADER_BYTES);
    stream.write(frame);
  }

  get hello(): GuestHello {
    if (this.#hello === undefined) throw new Error("a link is handed out after the agent's hello");
    return this.#hello;
  }

  start(number: number, task: TaskSpec, sink: TaskSink): Promise<{ readonly pid: number }> {
    return new Promise((resolve, reject) => {
      this.#requireOpen();
      if (this.#tasks.has(number)) throw new Error(`task ${number} is followed already`);
      const frame = encodeStart(number, task);
      const waiter = { resolve, reject };
      this.#tasks.set(number, new TaskFollower(sink, this.#newInput(number), START_OF_STREAMS, waiter));
      this.#send(frame);
    });
  }

  list(): Promise<readonly TaskReport[]> {
    return new Promise((resolve, reject) => {
      this.#requireOpen();
      this.#listings.push({ reports: [], resolve, reject });
      if (this.#listings.length === 1) this.#send(newFrame(FRAME.list, 0, 0, 0));
    });
  }

  attach(number: number, from: Readonly<Record<OutputStream, number>>, sink: TaskSink): void {
    this.#requireOpen();
    this.#tasks.set(number, new TaskFollower(sink, this.#newInput(number), from));
    this.acknowledge(number, "stdout", from.stdout);
    this.acknowledge(number, "stderr", from.stderr);
  }

  async writeStdin(number: number, offset: number, bytes: Uint8Array): Promise<void> {
    this.#requireOpen();
    await this.#follower(number).input.write(offset, bytes);
  }

  closeStdin(number: number): void {
    this.#tasks.get(number)?.input.close();
  }

  async takeInput(number: number): Promise<number> {
    this.#requireOpen();
    const follower = this.#follower(number);
    follower.input.abandon(new SandboxError("FailedPrecondition", "another writer has taken the input"));
    const answer = follower.awaitInputOffset();
    this.#send(newFrame(FRAME.inputAsk, 0, number, 0));
    return answer;
  }

  resize(number: number, size: TerminalSize): void {
    const bytes = encodeSize(size);
    const frame = newFrame(FRAME.resize, 0, number, bytes.length);
    frame.set(bytes, FRAME_HEADER_BYTES);
    this.#send(frame);
  }

  signal(number: number, signal: number, scope: "leader" | "group"): void {
    const frame = newFrame(FRAME.signal, scope === "group" ? 1 : 0, number, 4);
    frame.writeInt32LE(signal, FRAME_HEADER_BYTES);
    this.#send(frame);
  }

  acknowledge(number: number, stream: OutputStream, offset: number): void {
    this.#tasks.get(number)?.acknowledged(stream, offset);
    // An agent that sends and does not read must not fill our memory with what we have to say to it: the last word is enough.
    if (this.#stream.writableNeedDrain) this.#unsaid.set(`${number} ${stream}`, { number, stream, offset });
    else this.#sayAcknowledged(number, stream, offset);
  }

  #sayAcknowledged(number: number, stream: OutputStream, offset: number): void {
    const frame = newFrame(FRAME.ack, streamCode(stream), number, OFFSET_BYTES);
    putOffset(frame, FRAME_HEADER_BYTES, offset);
    this.#send(frame);
  }

  forget(number: number): void {
    const follower = this.#tasks.get(number);
    this.#tasks.delete(number);
    follower?.drop();
    this.#forgets.push(newFrame(FRAME.forget, 0, number, 0));
    // One that still runs or writes ends by this.
    if (follower?.over !== true || this.#forgets.length >= FORGET_TOGETHER) this.#sendForgets();
    else this.#forgetTimer ??= setTimeout(() => this.#sendForgets(), FORGET_WITHIN_MS).unref();
  }

  ping(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#requireOpen();
      const token = ++this.#lastPing;
      const timer = setTimeout(() => {
        this.#pings.delete(token);
        reject(new SandboxError("DeadlineExceeded", `the agent did not answer within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#pings.set(token, { timer, resolve, reject });
      const frame = newFrame(FRAME.ping, 0, 0, OFFSET_BYTES);
      putOffset(frame, FRAME_HEADER_BYTES, token);
      this.#stream.write(frame);
    });
  }

  close(): void {
    this.#stream.destroy();
  }

  #sayUnsaid(): void {
    const unsaid = [...this.#unsaid.values()];
    this.#unsaid.clear();
    for (const { number, stream, offset } of unsaid) this.#sayAcknowledged(number, stream, offset);
  }

  #send(frame: Buffer): void {
    // On a closed link there is nobody to tell, and `closed` has said so.
    if (this.#open)
      this.#stream.write(this.#forgets.length === 0 ? frame : Buffer.concat([...this.#takeForgets(), frame]));
  }

  #sendForgets(): void {
    const frames = this.#takeForgets();
    if (this.#open && frames.length > 0) this.#stream.write(Buffer.concat(frames));
  }

  #takeForgets(): Buffer[] {
    clearTimeout(this.#forgetTimer);
    this.#forgetTimer = undefined;
    return this.#forgets.splice(0);
  }

  #requireOpen(): void {
    if (!this.#open) throw connectionLost();
  }

  #follower(number: number): TaskFollower {
    const follower = this.#tasks.get(number);
    if (follower === undefined) throw new SandboxError("NotFound", `no task ${number} is followed on this connection`);
    return follower;
  }

  #newInput(number: number): InputSender {
    const channel: InputChannel = {
      data: (offset, bytes, sent) => this.#sendInput(number, { offset, bytes, sent }),
      end: (offset) => {
        const frame = newFrame(FRAME.stdinEof, 0, number, OFFSET_BYTES);
        if (offset === undefined) ANY_OFFSET.copy(frame, FRAME_HEADER_BYTES);
        else putOffset(frame, FRAME_HEADER_BYTES, offset);
        this.#send(frame);
      },
    };
    return new InputSender(channel, this.#inputWindowBytes);
  }

  #sendInput(
    number: number,
    input: { readonly offset: number; readonly bytes: Uint8Array; readonly sent: (() => void) | undefined },
  ): void {
    const { offset, bytes, sent } = input;
    if (!this.#open) return;
    const head = newFrame(FRAME.stdin, 0, number, OFFSET_BYTES);
    head.writeUInt32LE(head.length - 4 + bytes.length, 0);
    putOffset(head, FRAME_HEADER_BYTES, offset);
    this.#stream.cork();
    this.#stream.write(head);
    this.#stream.write(bytes, (error) => {
      if (!error) sent?.();
    });
    this.#stream.uncork();
  }

  /** Takes what the agent sent; the buffer is the caller's again afterwards. */
  receive(chunk: Buffer): void {
    // What a chunk of many frames is answered with leaves in one piece.
    this.#stream.cork();
    try {
      this.#decoder.push(chunk);
    } catch (error) {
      this.#stream.destroy();
      if (!(error instanceof SandboxError)) throw error;
      this.failure ??= error;
    } finally {
      this.#stream.uncork();
    }
  }

  #take(frame: Frame): void {
    if (!this.#open) return;
    switch (frame.type) {
      case FRAME.welcome:
        this.#greet(frame);
        break;
      case FRAME.pong:
        this.#pong(getOffset(frame.payload, 0));
        break;
      case FRAME.task:
        this.#reported(frame);
        break;
      case FRAME.listEnd:
        this.#listEnd();
        break;
      case FRAME.protocolError:
        throw new SandboxError("FailedPrecondition", "the agent refused the connection's protocol", {
          details: { ours: PROTOCOL_VERSION, theirs: frame.payload.readUInt32LE(0) },
          hint: "a sandbox of another version: destroy it, or connect with that version's node",
        });
      default:
        this.#takeOfTask(frame);
    }
  }

  #takeOfTask(frame: Frame): void {
    const follower = this.#tasks.get(frame.task);
    // What crossed a `forget`.
    if (follower === undefined) return;
    switch (frame.type) {
      case FRAME.started:
        follower.started(frame);
        break;
      case FRAME.startFailed:
        this.#tasks.delete(frame.task);
        follower.startFailed(frame);
        break;
      case FRAME.out:
        follower.output(frame);
        break;
      case FRAME.outEof:
        follower.outputEnded(frame);
        break;
      case FRAME.exit:
        follower.exited(frame);
        break;
      case FRAME.stdinAck:
        follower.inputAnswered(frame);
        break;
      case FRAME.inputAt:
        follower.inputAt(frame);
        break;
      default:
        throw malformed(`a frame of type ${frame.type}`);
    }
  }

  #greet(frame: Frame): void {
    if (this.#hello !== undefined) throw malformed("two greetings");
    this.#inputWindowBytes = frame.payload.readUInt32LE(12);
    this.#hello = {
      protocol: frame.payload.readUInt32LE(0),
      pid: frame.payload.readUInt32LE(4),
      bootId: frame.payload.toString("hex", 16, 32),
    };
    this.#onGreeted(this);
  }

  #pong(token: number): void {
    const ping = this.#pings.get(token);
    if (ping === undefined) return;
    this.#pings.delete(token);
    clearTimeout(ping.timer);
    ping.resolve();
  }

  #reported(frame: Frame): void {
    const reports = this.#listings[0]?.reports;
    if (reports?.length === TASK_LIMIT) throw malformed(`a list of more than ${TASK_LIMIT} tasks`);
    reports?.push(decodeReport(frame));
  }

  #listEnd(): void {
    const listing = this.#listings.shift();
    listing?.resolve(listing.reports);
    if (this.#listings.length > 0) this.#send(newFrame(FRAME.list, 0, 0, 0));
  }

  #lose(): void {
    this.#open = false;
    this.#takeForgets();
    const error = this.failure ?? connectionLost();
    for (const follower of this.#tasks.values()) follower.fail(error);
    for (const listing of this.#listings) listing.reject(error);
    for (const ping of this.#pings.values()) {
      clearTimeout(ping.timer);
      ping.reject(error);
    }
    this.#tasks.clear();
    this.#pings.clear();
    this.#listings.length = 0;
  }
}

/** What ends with the connection. */
export function connectionLost(): SandboxError {
  return new SandboxError("Unavailable", "the connection to the agent is gone", {
    hint: "connect again: the sandbox's tasks go on",
  });
}
