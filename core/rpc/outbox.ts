import type { BufferPool, PooledBuffer } from "#core/bytes/buffer-pool.ts";
import { SandboxError } from "#core/errors.ts";
import { costOf, encodeItem, type Payload, type Side } from "#core/rpc/frames.ts";
import { STREAM_WINDOW_BYTES } from "#core/rpc/inbox.ts";

/** Longest item: a quarter of the window, so that one item never waits for the window to be empty. */
export const ITEM_LIMIT_BYTES = STREAM_WINDOW_BYTES / 4;

/** Where a stream's frames go, and when the connection can take more. */
export interface OutboxLink {
  /** Where the buffers of items come from. */
  readonly frames: BufferPool;
  send(frame: Uint8Array, done?: () => void): void;
  /** Resolves when the connection is not congested; at once when it already is not. */
  ready(): Promise<void> | undefined;
}

/** The sending half of a stream: waits for credit before every item. */
export class Outbox {
  readonly #id: number;
  readonly #from: Side;
  readonly #link: OutboxLink;
  #creditBytes = STREAM_WINDOW_BYTES;
  #stopped = false;
  #wake: (() => void) | undefined;

  constructor(id: number, from: Side, link: OutboxLink) {
    this.#id = id;
    this.#from = from;
    this.#link = link;
  }

  /**
   * Sends every item; true at their end, false when stopped. Rejects with what the source threw. An item is copied before the
   * source is asked for the next.
   */
  async pump(items: AsyncIterable<Payload>): Promise<boolean> {
    for await (const item of items) {
      const { frame, done } = this.#encode(item);
      const cost = costOf(frame.length);
      if (cost > ITEM_LIMIT_BYTES) {
        throw new SandboxError("TooLarge", `an item of ${cost} bytes is longer than the ${ITEM_LIMIT_BYTES} allowed`);
      }
      while (this.#creditBytes < cost && !this.#stopped) await this.#credited();
      const ready = this.#stopped ? undefined : this.#link.ready();
      if (ready !== undefined) await ready;
      if (this.#stopped) return false;
      this.#creditBytes -= cost;
      this.#link.send(frame, done);
    }
    return !this.#stopped;
  }

  #encode(item: Payload): { readonly frame: Uint8Array; readonly done: (() => void) | undefined } {
    let pooled: PooledBuffer | undefined;
    const frame = encodeItem(this.#id, this.#from, item, (bytes) => {
      pooled = this.#link.frames.take(bytes);
      return pooled.buffer;
    });
    return { frame, done: pooled?.done };
  }

  /** False when the peer gives back more than it ever got. */
  credit(bytes: number): boolean {
    this.#creditBytes += bytes;
    this.#wake?.();
    return this.#creditBytes <= STREAM_WINDOW_BYTES;
  }

  stop(): void {
    this.#stopped = true;
    this.#wake?.();
  }

  #credited(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
