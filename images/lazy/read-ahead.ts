/** Reads that follow one another. */
interface Stream {
  /** Where the last read of it ended, in pieces. */
  end: number;
  /** Up to where its pieces were asked for. */
  ahead: number;
  window: number;
}

/** Readers of one blob at a time that are told apart. */
const STREAMS = 8;
/** 4 MiB of pieces of 256 KiB: more than a store with 5 ms of latency and 100 MB/s has on the way. */
const MAX_WINDOW = 16;

/**
 * How far to read ahead in one blob. The window of a stream doubles with every read that continues it, halves with one that
 * skips within what was read ahead, and a read from anywhere else begins with none.
 */
export class ReadAhead {
  /** The last used one last. */
  readonly #streams: Stream[] = [];

  /** To be called for every read that has to wait. Returns the piece up to which to read, at least `end`. */
  next(first: number, end: number): number {
    const at = this.#streams.findIndex((stream) => first >= stream.end - 1 && first <= stream.ahead);
    const [stream = { end: first, ahead: end, window: 0 }] = at < 0 ? [] : this.#streams.splice(at, 1);
    if (at >= 0) {
      const isNext = first <= stream.end;
      stream.window = isNext ? Math.min(MAX_WINDOW, Math.max(1, stream.window * 2)) : stream.window >> 1;
    }
    stream.end = end;
    stream.ahead = Math.max(stream.ahead, end + stream.window);
    this.#streams.push(stream);
    if (this.#streams.length > STREAMS) this.#streams.shift();
    return stream.ahead;
  }
}
