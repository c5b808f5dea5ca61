/** Bytes that are handed over at a time: enough to keep calls few, few enough to keep memory flat. */
export const BATCH_BYTES = 256 * 1024;

/** Gathers small parts of an archive: a tree of small files must not become a packet a header. */
export class Batch {
  #parts: Uint8Array[] = [];
  #size = 0;

  /** Everything so far, once that is enough. */
  add(part: Uint8Array): Uint8Array | undefined {
    this.#parts.push(part);
    this.#size += part.byteLength;
    return this.#size >= BATCH_BYTES ? this.take() : undefined;
  }

  /** Everything so far. */
  take(): Uint8Array {
    const [only, ...more] = this.#parts;
    const whole = only !== undefined && more.length === 0 ? only : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#size = 0;
    return whole;
  }
}
