import { SandboxError } from "#core/errors.ts";
import type { BlobDescriptor } from "../blobs/descriptor.ts";
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
      // What is damaged, or gone, may have been pushed anew.
      if (error instanceof SandboxError && error.kind !== "Unavailable") this.#data.delete(blob.descriptor);
      throw error;
    }
  }

  async #dataOf({ digest, descriptor }: NamedBlob, signal: AbortSignal): Promise<BlobData> {
    for (let known = this.#data.get(descriptor); known !== undefined; known = this.#data.get(descriptor)) {
      try {
        return await known;
      } catch {
        // Whoever asked may have given up, long before this reader does.
        signal.throwIfAborted();
      }
    }
    const opening = openBlobData(this.#store, digest, descriptor, signal);
    this.#data.set(descriptor, opening);
    try {
      return await opening;
    } catch (error) {
      if (this.#data.get(descriptor) === opening) this.#data.delete(descriptor);
      throw error;
    }
  }
}
