/** Smaller buffers are not worth keeping: they come from the runtime's own pool. */
const POOLED_FROM_BYTES = 8 * 1024;
/** Buffers kept for the next use; more were in use together only for a moment. */
const KEPT_BUFFERS = 32;

/** A buffer, and how to give it back: whoever does so does not touch it any more. */
export interface PooledBuffer {
  readonly buffer: Buffer;
  /** Undefined when nobody wants it back. */
  readonly done: (() => void) | undefined;
}

/**
 * Buffers for the pieces of streams. A fresh one for each would count against the heap: for every 64 MB of stream the runtime
 * would walk the whole of it, and that costs more than moving the bytes.
 */
export class BufferPool {
  readonly #sizeBytes: number;
  readonly #free: Buffer[] = [];

  /** `sizeBytes`: the longest that is asked for. */
  constructor(sizeBytes: number) {
    this.#sizeBytes = sizeBytes;
  }

  /** A buffer of at least `bytes`. One that is never given back is collected like any other. */
  take(bytes: number): PooledBuffer {
    if (bytes < POOLED_FROM_BYTES || bytes > this.#sizeBytes) {
      return { buffer: Buffer.allocUnsafe(bytes), done: undefined };
    }
    const buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#sizeBytes);
    return { buffer, done: () => this.#give(buffer) };
  }

  #give(buffer: Buffer): void {
    if (this.#free.length < KEPT_BUFFERS) this.#free.push(buffer);
  }
}
