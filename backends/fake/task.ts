import type { TaskEnd, TaskReport, TaskSink } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";
import { Errno } from "./files.ts";
import type { FakeLink } from "./link.ts";

/** Unacknowledged bytes of a stream after which its writer waits, as in the real agent. */
const WINDOW_BYTES = 256 * 1024;
const STREAMS = ["stdout", "stderr"] as const satisfies readonly OutputStream[];

/** What a program of the fake guest can do. Every wait rejects once the program is killed. */
export interface ProgramIo {
  write(stream: OutputStream, bytes: Uint8Array): Promise<void>;
  /** The next input; undefined at its end. */
  read(): Promise<Uint8Array | undefined>;
  sleep(delayMs: number): Promise<void>;
  /** Dies by the signal. */
  die(signal: string): never;
  /** The memory limit kills it. */
  exhaustMemory(): never;
  /** Keeps the streams open after the program's end, until `work` settles. */
  background(work: Promise<void>): void;
}

/** Resolves with the exit code. */
export type Program = (io: ProgramIo) => Promise<number>;

/** How a program was ended. */
export class Killed extends Error {
  readonly signal: string;
  readonly cause_: TaskEnd["cause"];

  constructor(signal: string, cause: TaskEnd["cause"] = "signaled") {
    super(signal);
    this.signal = signal;
    this.cause_ = cause;
  }
}

interface Held {
  /** Bytes the edge has not acknowledged, from `from` on. */
  bytes: Uint8Array;
  from: number;
  sent: number;
  ended: boolean;
  /** False until the edge said on this link how far it has the stream. */
  endTold: boolean;
}

/** A task of the fake guest: lives apart from any link, keeps its output until it is acknowledged. */
export class FakeTask {
  readonly number: number;
  readonly pid: number;
  readonly #held: Record<OutputStream, Held> = { stdout: held(), stderr: held() };
  readonly #killed = Promise.withResolvers<never>();
  #input: Uint8Array[] = [];
  #inputTaken = 0;
  #inputClosed = false;
  #background: Promise<void>[] = [];
  #wake: (() => void)[] = [];
  #link: FakeLink | undefined;
  #sink: TaskSink | undefined;
  #end: TaskEnd | undefined;
  #endTold = false;

  constructor(number: number, pid: number) {
    this.number = number;
    this.pid = pid;
    this.#killed.promise.catch(() => undefined);
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  /** Runs a program to its end. Never rejects. */
  async run(program: Program, io: Pick<ProgramIo, "sleep" | "exhaustMemory">): Promise<void> {
    let outcome: Pick<TaskEnd, "cause" | "code" | "signal">;
    try {
      const full: ProgramIo = {
        write: (stream, bytes) => this.#write(stream, bytes),
        read: () => this.#read(),
        sleep: (delayMs) => this.#unlessKilled(io.sleep(delayMs)),
        die: (signal) => {
          throw new Killed(signal);
        },
        exhaustMemory: io.exhaustMemory,
        background: (work) => this.#background.push(work),
      };
      outcome = { cause: "exited", code: await this.#unlessKilled(program(full)), signal: undefined };
    } catch (error) {
      if (error instanceof Errno) outcome = { cause: "exited", code: error.code, signal: undefined };
      else if (error instanceof Killed) outcome = { cause: error.cause_, code: undefined, signal: error.signal };
      else throw error;
    }
    this.#end = { ...outcome, wallMs: 1, cpuMs: 1, maxRssKiB: 1 };
    if (this.#background.length > 0) this.#tell();
    await Promise.allSettled(this.#background);
    for (const stream of STREAMS) this.#held[stream].ended = true;
    this.#tell();
  }

  kill(killed: Killed): void {
    this.#killed.reject(killed);
  }

  /** The sandbox dies: nobody is told anything any more. */
  abandon(): void {
    this.detach();
    this.kill(new Killed("SIGKILL"));
  }

  attach(link: FakeLink, sink: TaskSink, from: Readonly<Record<OutputStream, number>>): void {
    this.#link = link;
    this.#sink = sink;
    this.#endTold = false;
    for (const stream of STREAMS) {
      const state = this.#held[stream];
      if (from[stream] < state.from || from[stream] > state.from + state.bytes.length) {
        throw new Error(`resumed ${stream} at ${from[stream]}, holding ${state.from} and ${state.bytes.length} bytes`);
      }
      this.acknowledge(stream, from[stream]);
      state.sent = from[stream];
      state.endTold = false;
    }
    this.#tell();
  }

  detach(): void {
    this.#link = undefined;
    this.#sink = undefined;
  }

  acknowledge(stream: OutputStream, offset: number): void {
    const state = this.#held[stream];
    if (offset < state.from || offset > state.from + state.bytes.length) throw new Error(`acknowledged ${offset}`);
    state.bytes = state.bytes.subarray(offset - state.from);
    state.from = offset;
    this.#changed();
  }

  writeStdin(offset: number, bytes: Uint8Array): void {
    if (offset > this.#inputTaken) throw new Error(`input at ${offset} after ${this.#inputTaken}`);
    const fresh = bytes.subarray(this.#inputTaken - offset);
    this.#inputTaken += fresh.length;
    if (fresh.length > 0) this.#input.push(new Uint8Array(fresh));
    this.#changed();
  }

  closeStdin(): void {
    this.#inputClosed = true;
    this.#changed();
  }

  /** Input that has arrived. */
  get inputBytes(): number {
    return this.#inputTaken;
  }

  get report(): TaskReport {
    const range = (state: Held) => ({ from: state.from, to: state.from + state.bytes.length });
    return {
      number: this.number,
      pid: this.pid,
      end: this.#end,
      streams: { stdout: range(this.#held.stdout), stderr: range(this.#held.stderr) },
    };
  }

  async #write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    const state = this.#held[stream];
    for (let at = 0; at < bytes.length; ) {
      const room = WINDOW_BYTES - state.bytes.length;
      const part = bytes.subarray(at, at + room);
      if (part.length === 0) {
        await this.#change();
        continue;
      }
      state.bytes = Buffer.concat([state.bytes, part]);
      at += part.length;
      this.#tell();
    }
  }

  async #read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const next = this.#input.shift();
      if (next !== undefined) return next;
      if (this.#inputClosed) return undefined;
      await this.#change();
    }
  }

  /** Gives the sink what it does not have yet. */
  #tell(): void {
    const [link, sink] = [this.#link, this.#sink];
    if (link === undefined || sink === undefined) return;
    for (const stream of STREAMS) {
      const state = this.#held[stream];
      const bytes = state.bytes.subarray(state.sent - state.from);
      const offset = state.sent;
      if (bytes.length > 0) link.post(() => sink.output(stream, offset, bytes));
      state.sent += bytes.length;
      if (!state.ended || state.endTold) continue;
      state.endTold = true;
      link.post(() => sink.ended(stream, state.sent));
    }
    const end = this.#end;
    if (end === undefined || this.#endTold) return;
    this.#endTold = true;
    link.post(() => sink.end(end));
  }

  #change(): Promise<void> {
    return this.#unlessKilled(new Promise((resolve) => this.#wake.push(resolve)));
  }

  #changed(): void {
    const wake = this.#wake;
    this.#wake = [];
    for (const resolve of wake) resolve();
  }

  #unlessKilled<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#killed.promise]);
  }
}

function held(): Held {
  return { bytes: new Uint8Array(), from: 0, sent: 0, ended: false, endTold: false };
}
