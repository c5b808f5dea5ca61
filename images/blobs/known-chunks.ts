import type { BlobDigest } from "../digest.ts";
import { MAX_DEVICES } from "../erofs/format.ts";
import type { KnownChunk } from "./blob.ts";
import type { ChunkIndex } from "./chunk-index.ts";
import type { BlobStore } from "./store.ts";

/**
 * What one layer that is being made may share: chunks of blobs that stay in the store until this is disposed. It points into as
 * many blobs as an image can name beside its own; chunks of further ones are not found.
 */
export class KnownChunks implements Disposable {
  readonly #index: ChunkIndex;
  readonly #blobs: BlobStore;
  /** `undefined`: not to be used. */
  readonly #holds = new Map<BlobDigest, Disposable | undefined>();
  #held = 0;

  constructor(index: ChunkIndex, blobs: BlobStore) {
    this.#index = index;
    this.#blobs = blobs;
  }

  /** Where the store has a chunk, by the hex of its SHA-256. */
  find(digest: string): KnownChunk | undefined {
    const found = this.#index.find(digest);
    return found !== undefined && this.#isHeld(found.blob) ? found : undefined;
  }

  #isHeld(blob: BlobDigest): boolean {
    if (!this.#holds.has(blob)) {
      if (this.#held === MAX_DEVICES - 1) return false;
      const hold = this.#blobs.hold(blob);
      this.#holds.set(blob, hold);
      if (hold !== undefined) this.#held++;
    }
    return this.#holds.get(blob) !== undefined;
  }

  [Symbol.dispose](): void {
    for (const hold of this.#holds.values()) hold?.[Symbol.dispose]();
    this.#holds.clear();
  }
}
