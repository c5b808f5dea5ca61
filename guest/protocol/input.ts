import { BufferPool } from "#core/bytes/buffer-pool.ts";
import { SandboxError } from "#core/errors.ts";
import { DATA_LIMIT_BYTES } from "./frames.ts";

/** Answers of the agent to stdin: the flag of STDIN_ACK. */
const ANSWER = { taken: 0, gap: 1, absent: 2 } as const;

/** Where input waits for the agent's window and the socket, of all links. */
const BUFFERS = new BufferPool(DATA_LIMIT_BYTES);

/** What a task's stdin is sent through: frames of at most DATA_LIMIT_BYTES, then one end. */
export interface InputChannel {
  /** Calls `sent` when the bytes are not looked at any more; never when the connection ends first. */
  data(offset: number, bytes: Uint8Array, sent: (() => void) | undefined): void;
  /** `undefined`: at whatever offset the agent has reached. */
  end(offset: number | undefined): void;
}

interface Write {
  readonly end: number;
  /** Offset and bytes not sent yet. */
  at: number;
  rest: Uint8Array;
  /** Gives their buffer back. */
  readonly done: (() => void) | undefined;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** The stdin of one task on one connection: sends no further than the agent's window, settles writes when they are taken. */
export class InputSender {
  readonly #channel: InputChannel;
  readonly #windowBytes: number;
  /** Writes not taken yet, in order. */
  #writes: Write[] = [];
  #acknowledged: number | undefined;
  #end: number | undefined;
  #closing = false;

  constructor(channel: InputChannel, windowBytes: number) {
    this.#channel = channel;
    this.#windowBytes = windowBytes;
  }

  /** Resolves when the task, or its pipe, has taken the last of the bytes. They are the caller's again when this returns. */
  write(offset: number, bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = offset + bytes.length;
      // Who writes from here on says that all before was taken.
      this.#acknowledged ??= offset;
      this.#end = Math.max(this.#end ?? 0, end);
      const { buffer, done } = BUFFERS.take(bytes.length);
      buffer.set(bytes);
      this.#writes.push({ end, at: offset, rest: buffer.subarray(0, bytes.length), done, resolve, reject });
      this.#pump();
    });
  }

  /** Whether a write waits to be taken. */
  get waits(): boolean {
    return this.#writes.length > 0;
  }

  close(): void {
    this.#closing = true;
    this.#pump();
  }

  answered(answer: number, offset: number): void {
    if (answer !== ANSWER.taken) {
      this.fail(
        answer === ANSWER.absent
          ? new SandboxError("FailedPrecondition", "the task takes no input", { hint: "start it with a stdin pipe" })
          : new SandboxError("FailedPrecondition", `the input has a gap: the task has taken ${offset} bytes`, {
              hint: "write from that offset on",
              details: { offset },
            }),
      );
      return;
    }
    this.#acknowledged = Math.max(this.#acknowledged ?? 0, offset);
    this.#pump();
  }

  /** Rejects what is not taken yet, and sends no more of it: another writer goes on from wherever the agent is. */
  abandon(error: Error): void {
    this.fail(error);
    this.#acknowledged = undefined;
    this.#end = undefined;
  }

  fail(error: Error): void {
    const writes = this.#writes;
    this.#writes = [];
    for (const write of writes) write.reject(error);
  }

  #pump(): void {
    const acknowledged = this.#acknowledged ?? 0;
    for (const write of this.#writes) this.#send(write, acknowledged + this.#windowBytes);
    while (this.#writes[0] !== undefined && this.#writes[0].rest.length === 0 && this.#writes[0].end <= acknowledged) {
      this.#writes.shift()?.resolve();
    }
    if (this.#closing && this.#writes.length === 0) {
      this.#closing = false;
      this.#channel.end(this.#end);
    }
  }

  #send(write: Write, limit: number): void {
    while (write.rest.length > 0 && write.at < limit) {
      const piece = write.rest.subarray(0, Math.min(DATA_LIMIT_BYTES, limit - write.at));
      const at = write.at;
      write.at += piece.length;
      write.rest = write.rest.subarray(piece.length);
      // Not when the agent says that it took them: it may lie, and what is still to be sent would be another sandbox's bytes.
      this.#channel.data(at, piece, write.rest.length === 0 ? write.done : undefined);
    }
  }
}
