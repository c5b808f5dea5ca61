import type { BlobDescriptor } from "../descriptor.ts";
import type { BlobDigest } from "../digest.ts";
import { type BlobData, openBlobData } from "../store/blob-data.ts";
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
  /** How their data lies, for as long as somebody has the blob. */
  readonly #data = new WeakMap<BlobDescriptor, Promise<BlobData>>();

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /** Asks how the data of a blob lies, so that its first reader need not. A failure is no error: whoever reads asks again. */
  prepare(blob: NamedBlob, signal: AbortSignal): void {
    this.#dataOf(blob, signal).catch(() => undefined);
  }

  async read(blob: NamedBlob, first: number, into: Buffer, signal: AbortSignal): Promise<void> {
    const end = first + Math.ceil(into.length / blob.descriptor.pieceBytes);
    const data = await this.#dataOf(blob, signal);
    let filled = 0;
    try {
      for await (const piece of data.pieces(first, end, signal)) {
        into.set(piece, filled);
        filled += piece.length;
      }
    } catch (error) {
      // It may have been damaged and been pushed anew.
      this.#data.delete(blob.descriptor);
      throw error;
    }
  }

  async #dataOf({ digest, descriptor }: NamedBlob, signal: AbortSignal): Promise<BlobData> {
    const known = this.#data.get(descriptor);
    if (known !== undefined) return await known;
    const opening = openBlobData(this.#store, digest, descriptor, signal);
    this.#data.set(descriptor, opening);
    opening.catch(() => this.#data.delete(descriptor));
    return await opening;
  }
}
