/** Reads that follow one another. */
interface Stream {
  /** Where the last read of it ended, in pieces. */
  end: number;
  /** Up to where its pieces were asked for. */
  ahead: number;
  window: number;
}

/** Pieces that should be fetched before somebody reads them: from `first` up to and without `end`. */
export interface Ahead {
  readonly first: number;
  readonly end: number;
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

  /**
   * To be called for every read that has to wait, and for those that reach the first piece of what this last gave. `wasRead` tells of
   * reads that nobody called for. Returns what to fetch that was not asked for yet.
   */
  next(first: number, end: number, wasRead: (piece: number) => boolean): Ahead | undefined {
    const at = this.#streams.findIndex((stream) => first >= stream.end - 1 && first <= stream.ahead);
    const [stream = { end: first, ahead: end, window: 0 }] = at < 0 ? [] : this.#streams.splice(at, 1);
    if (at >= 0) {
      const isNext = areAll(stream.end, first, wasRead);
      stream.window = isNext ? Math.min(MAX_WINDOW, Math.max(1, stream.window * 2)) : stream.window >> 1;
    }
    const before = Math.max(stream.ahead, end);
    stream.end = end;
    stream.ahead = Math.max(before, end + stream.window);
    this.#streams.push(stream);
    if (this.#streams.length > STREAMS) this.#streams.shift();
    return stream.ahead > before ? { first: before, end: stream.ahead } : undefined;
  }
}

function areAll(first: number, end: number, wasRead: (piece: number) => boolean): boolean {
  for (let piece = first; piece < end; piece++) if (!wasRead(piece)) return false;
  return true;
}
