import type { BlobDescriptor } from "../descriptor.ts";
import { BLOB_FILES, damagedBlob } from "../descriptor.ts";
import { type BlobDigest, hexOf, sha256Hex } from "../digest.ts";
import type { ObjectStore } from "../store/object-store.ts";

/** Blobs wherever they are. */
export interface BlobSource {
  /**
   * Whole pieces of a blob, from `first` up to and without `end`: one is shorter where the blob ends. Every byte is verified. Rejects
   * with `Internal` for pieces that are damaged, and as the store does.
   */
  read(blob: NamedBlob, first: number, end: number, signal: AbortSignal): Promise<Buffer>;
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

  async read({ digest, descriptor }: NamedBlob, first: number, end: number, signal: AbortSignal): Promise<Buffer> {
    const { pieceBytes, sizeBytes, pieces } = descriptor;
    const offset = first * pieceBytes;
    const bytes = Buffer.allocUnsafeSlow(Math.min(end * pieceBytes, sizeBytes) - offset);
    const key = `blobs/${hexOf(digest)}/${BLOB_FILES.data}`;
    let filled = 0;
    for await (const part of this.#store.get(key, { offset, lengthBytes: bytes.length }, signal)) {
      bytes.set(part, filled);
      filled += part.length;
    }
    for (let piece = first; piece < end; piece++) {
      const start = (piece - first) * pieceBytes;
      const isWhole = sha256Hex(bytes.subarray(start, start + pieceBytes)) === pieces[piece];
      if (!isWhole) throw damagedBlob(digest, "data");
    }
    return bytes;
  }
}
