/** Bytes that are handed over at a time: enough to keep calls few, few enough to keep memory flat. */
export const BATCH_BYTES = 256 * 1024;

/** Gathers small parts of an archive: a tree of small files must not become a packet a header. */
export class Batch {
  #parts: Uint8Array[] = [];
  #size = 0;

  /** Takes a part; the next that is handed over begins with it. */
  push(part: Uint8Array): void {
    this.#parts.push(part);
    this.#size += part.byteLength;
  }

  /** Takes a part, and hands over everything so far once that is enough: whoever does not send it has lost it. */
  add(part: Uint8Array): Uint8Array | undefined {
    this.push(part);
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
