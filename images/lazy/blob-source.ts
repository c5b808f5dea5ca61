import type { BlobDescriptor } from "../descriptor.ts";
import { BLOB_FILES, damagedBlob } from "../descriptor.ts";
import { type BlobDigest, hexOf, sha256Hex } from "../digest.ts";
import type { ObjectStore } from "../store/object-store.ts";

/** Blobs wherever they are. */
export interface BlobSource {
  /**
   * Fills `into` with whole pieces of a blob, from `first` on: it is as long as they are. Every byte is verified. Rejects with `Internal`
   * for pieces that are damaged, and as the store does. Nothing is written to `into` once it has settled.
   */
  read(blob: NamedBlob, first: number, into: Buffer, signal: AbortSignal): Promise<void>;
}

/** A blob and what its pieces must be. */
export interface NamedBlob {
  readonly digest: BlobDigest;
  readonly descriptor: BlobDescriptor;
}

/** Blobs of an object store. */
export class StoreBlobs implements BlobSource {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  async read({ digest, descriptor }: NamedBlob, first: number, into: Buffer, signal: AbortSignal): Promise<void> {
    const { pieceBytes, pieces } = descriptor;
    const range = { offset: first * pieceBytes, lengthBytes: into.length };
    let filled = 0;
    for await (const part of this.#store.get(`blobs/${hexOf(digest)}/${BLOB_FILES.data}`, range, signal)) {
      into.set(part, filled);
      filled += part.length;
    }
    for (let start = 0, piece = first; start < into.length; start += pieceBytes, piece++) {
      const isWhole = sha256Hex(into.subarray(start, start + pieceBytes)) === pieces[piece];
      if (!isWhole) throw damagedBlob(digest, "data");
    }
  }
}
