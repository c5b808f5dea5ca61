import type { SandboxError } from "#core/errors.ts";
import type { Payload } from "#core/rpc/frames.ts";

/** Bytes one stream may have under way: sent by one side and not taken by the consumer on the other. */
export const STREAM_WINDOW_BYTES = 512 * 1024;
/** Credit goes back in lumps: a frame a item would double the traffic. */
const GRANT_BYTES = STREAM_WINDOW_BYTES / 4;

interface Queued {
  readonly payload: Payload;
  readonly cost: number;
  readonly done: (() => void) | undefined;
}

/** What an inbox says to the other end of its stream. */
export interface InboxSender {
  /** The consumer asks for the first item. */
  begin?(): void;
  /** It has taken so much: as much may be sent again. */
  grant(bytes: number): void;
  /** It leaves before the end. */
  stop?(): void;
}

/**
 * The receiving half of a stream: a queue that is never longer than the window, since the credit for more is only given when
 * the consumer takes items. One consumer; an item's bytes are its own until it asks for the next.
 */
export class Inbox implements AsyncIterableIterator<Payload, undefined> {
  readonly #sender: InboxSender;
  #queue: Queued[] = [];
  #head = 0;
  #heldBytes = 0;
  #owedBytes = 0;
  #end: { readonly error: SandboxError | undefined } | undefined;
  /** Gives back the bytes of the item that the consumer has now. */
  #done: (() => void) | undefined;
  #waiting: { resolve(result: IteratorResult<Payload, undefined>): void; reject(error: unknown): void } | undefined;

  #begun = false;

  constructor(sender: InboxSender) {
    this.#sender = sender;
  }

  /** False when the sender had no credit for the item. */
  push(payload: Payload, cost: number, done?: () => void): boolean {
    if (this.#end !== undefined) return true;
    if (this.#heldBytes + this.#owedBytes + cost > STREAM_WINDOW_BYTES) return false;
    const waiting = this.#waiting;
    if (waiting === undefined) {
      this.#queue.push({ payload, cost, done });
      this.#heldBytes += cost;
      return true;
    }
    this.#waiting = undefined;
    this.#done = done;
    this.#owe(cost);
    waiting.resolve({ done: false, value: payload });
    return true;
  }

  /** No more items; what is queued can still be taken, then the consumer gets the end, or the error. */
  end(error?: SandboxError): void {
    if (this.#end !== undefined) return;
    this.#end = { error };
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (error === undefined) waiting?.resolve({ done: true, value: undefined });
    else waiting?.reject(error);
  }

  next(): Promise<IteratorResult<Payload, undefined>> {
    this.#release();
    if (!this.#begun) {
      this.#begun = true;
      this.#sender.begin?.();
    }
    const queued = this.#queue[this.#head];
    if (queued !== undefined) {
      this.#head += 1;
      if (this.#head === this.#queue.length || this.#head > 1024) {
        this.#queue = this.#queue.slice(this.#head);
        this.#head = 0;
      }
      this.#heldBytes -= queued.cost;
      this.#done = queued.done;
      this.#owe(queued.cost);
      return Promise.resolve({ done: false, value: queued.payload });
    }
    if (this.#end?.error !== undefined) return Promise.reject(this.#end.error);
    if (this.#end !== undefined) return Promise.resolve({ done: true, value: undefined });
    if (this.#waiting !== undefined) return Promise.reject(new Error("a stream has one consumer"));
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  return(): Promise<IteratorResult<Payload, undefined>> {
    // A handler may look at its item after its call has ended: that buffer is left to the collector.
    this.#done = undefined;
    this.#queue = [];
    this.#head = 0;
    this.#heldBytes = 0;
    if (this.#end === undefined) {
      this.end();
      if (this.#begun) this.#sender.stop?.();
    }
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #release(): void {
    this.#done?.();
    this.#done = undefined;
  }

  #owe(cost: number): void {
    this.#owedBytes += cost;
    if (this.#owedBytes < GRANT_BYTES || this.#end !== undefined) return;
    const grant = this.#owedBytes;
    this.#owedBytes = 0;
    this.#sender.grant(grant);
  }
}
