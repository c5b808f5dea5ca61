import { badInput } from "#core/tar/entry.ts";

const NONE = new Uint8Array(0);

/** Bytes of a stream, as many at a time as its reader asks for. Damage is the reader's word for it; a stream that ends early is refused. */
export class Pieces {
  readonly #iterator: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = NONE;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#iterator = source[Symbol.asyncIterator]();
  }

  /** False when nothing comes any more. */
  async hasMore(): Promise<boolean> {
    while (this.#rest.length === 0) {
      const next = await this.#iterator.next();
      if (next.done === true) return false;
      this.#rest = next.value;
    }
    return true;
  }

  /** The next `count` bytes together; few enough to be held. */
  async exactly(count: number): Promise<Buffer> {
    return Buffer.concat(await Array.fromAsync(this.next(count)), count);
  }

  /** The next `count` bytes as they come. Whoever stops in the middle leaves the rest of them to the next call. */
  async *next(count: number): AsyncGenerator<Uint8Array> {
    for (let left = count; left > 0; ) {
      if (!(await this.hasMore())) throw badInput("the package is cut off", "send the whole file again");
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  /** Ends the stream; one that waits for its sender is not waited for. */
  end(): void {
    this.#iterator.return?.().catch(() => undefined);
  }
}
