import { SandboxError } from "#core/errors.ts";
import type { TaskSink } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";
import { decodeEnd, startFailure } from "./failures.ts";
import { type Frame, getOffset, malformed } from "./frames.ts";
import type { InputSender } from "./input.ts";

/** What an agent keeps unacknowledged of a stream: one that sends more would fill the memory of whoever reads slowly. */
const OUTPUT_WINDOW_BYTES = 256 * 1024;

const STREAMS = ["stdout", "stderr"] as const satisfies readonly OutputStream[];

interface Waiter {
  readonly resolve: (started: { readonly pid: number }) => void;
  readonly reject: (error: Error) => void;
}

/** One task as a link follows it: turns frames into calls of the sink, and holds the agent to the order of its offsets. */
export class TaskFollower {
  readonly input: InputSender;
  readonly #sink: TaskSink;
  readonly #next: Record<OutputStream, number>;
  readonly #acknowledged: Record<OutputStream, number>;
  /** What has not been told of yet: the leader's end, and that of each stream. */
  readonly #outstanding = new Set(["end", "stdout", "stderr"]);
  #waiter: Waiter | undefined;
  /** Who asked how far the input is; the agent answers in order. */
  #offsetWaiters: { readonly resolve: (offset: number) => void; readonly reject: (error: Error) => void }[] = [];

  constructor(sink: TaskSink, input: InputSender, from: Readonly<Record<OutputStream, number>>, waiter?: Waiter) {
    this.input = input;
    this.#sink = sink;
    this.#next = { ...from };
    this.#acknowledged = { ...from };
    this.#waiter = waiter;
  }

  /** True when the agent has nothing more to say of it. */
  get over(): boolean {
    return this.#outstanding.size === 0;
  }

  started(frame: Frame): void {
    const pid = frame.payload.readUInt32LE(0);
    this.#sink.started?.(pid);
    this.#waiter?.resolve({ pid });
    this.#waiter = undefined;
  }

  startFailed(frame: Frame): void {
    this.fail(startFailure(frame.flag, frame.payload.readInt32LE(0)));
  }

  output(frame: Frame): void {
    const stream = streamOf(frame);
    const offset = getOffset(frame.payload, 0);
    const bytes = frame.payload.subarray(8);
    if (offset !== this.#next[stream]) throw malformed(`output at ${offset} after ${this.#next[stream]}`);
    this.#next[stream] += bytes.length;
    if (this.#next[stream] - this.#acknowledged[stream] > OUTPUT_WINDOW_BYTES) {
      throw malformed(`more than ${OUTPUT_WINDOW_BYTES} bytes of ${stream} that nobody has acknowledged`);
    }
    this.#sink.output(stream, offset, bytes);
  }

  acknowledged(stream: OutputStream, offset: number): void {
    this.#acknowledged[stream] = Math.max(this.#acknowledged[stream], offset);
  }

  outputEnded(frame: Frame): void {
    const stream = streamOf(frame);
    const offset = getOffset(frame.payload, 0);
    if (offset !== this.#next[stream]) throw malformed(`the end of output at ${offset} after ${this.#next[stream]}`);
    this.#outstanding.delete(stream);
    this.#sink.ended(stream, offset);
  }

  exited(frame: Frame): void {
    this.#outstanding.delete("end");
    this.#sink.end(decodeEnd(frame.flag, frame.payload, 0));
  }

  inputAnswered(frame: Frame): void {
    this.input.answered(frame.flag, getOffset(frame.payload, 0));
  }

  /** Resolves with the next answer to an INPUT_ASK. */
  awaitInputOffset(): Promise<number> {
    return new Promise((resolve, reject) => this.#offsetWaiters.push({ resolve, reject }));
  }

  inputAt(frame: Frame): void {
    this.#offsetWaiters.shift()?.resolve(getOffset(frame.payload, 0));
  }

  /** Nobody follows the task any more. */
  drop(): void {
    // Most have ended, and an error with its stack is not for free.
    if (this.#waiter !== undefined || this.#offsetWaiters.length > 0 || this.input.waits) {
      this.fail(new SandboxError("Cancelled", "the task was dropped"));
    }
  }

  /** Rejects what waits for the task. */
  fail(error: Error): void {
    for (const { reject } of this.#offsetWaiters.splice(0)) reject(error);
    this.#waiter?.reject(error);
    this.#waiter = undefined;
    this.input.fail(error);
  }
}

/** The wire's number of a stream. */
export function streamCode(stream: OutputStream): number {
  return STREAMS.indexOf(stream);
}

function streamOf(frame: Frame): OutputStream {
  const stream = STREAMS[frame.flag];
  if (stream === undefined) throw malformed(`a stream numbered ${frame.flag}`);
  return stream;
}
