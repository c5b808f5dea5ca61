/** What every stream may keep though the budget is used up: enough to tell what a command was about. */
export const ALWAYS_KEPT_BYTES = 64 * 1024;

/**
 * How much of the outputs of one sandbox is kept, all its commands together. When more is asked for than is left, the outputs of
 * commands that have ended go, the oldest first; when there are none, the stream that asked stops growing.
 */
export class OutputBudget {
  readonly #capBytes: number;
  readonly #dropOldest: () => number;
  #usedBytes = 0;

  /** `dropOldest` drops what one ended command has kept and says how much that was; 0 when there is nothing to drop. */
  constructor(capBytes: number, dropOldest: () => number) {
    this.#capBytes = capBytes;
    this.#dropOldest = dropOldest;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Takes the bytes, or nothing when there is no room for them and none can be made. */
  grow(bytes: number): boolean {
    if (!this.#makeRoom(bytes)) return false;
    this.#usedBytes += bytes;
    return true;
  }

  /** Takes the bytes, over the cap when no room can be made: they are kept in any case. */
  take(bytes: number): void {
    this.#makeRoom(bytes);
    this.#usedBytes += bytes;
  }

  /** Counts bytes that an earlier process kept. */
  adopt(bytes: number): void {
    this.#usedBytes += bytes;
  }

  /** Bytes that are not kept any more. */
  give(bytes: number): void {
    this.#usedBytes -= bytes;
  }

  #makeRoom(bytes: number): boolean {
    while (this.#usedBytes + bytes > this.#capBytes) {
      const freed = this.#dropOldest();
      if (freed === 0) return false;
      this.#usedBytes -= freed;
    }
    return true;
  }
}
