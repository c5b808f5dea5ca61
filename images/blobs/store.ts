import { closeSync, existsSync, renameSync, utimesSync } from "node:fs";
import { open, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { type BlobDigest, blobDigest, hexOf, isHexDigest, sha256Hex } from "../digest.ts";
import { hashFile, statOf, syncDirectory, syncFiles, typedStorageErrors, writeNew } from "../durable.ts";
import { lockDirectory } from "../scratch.ts";
import {
  BLOB_FILES,
  type BlobDescriptor,
  damagedBlob,
  descriptorText,
  digestOfBlob,
  MAX_DESCRIPTOR_BYTES,
  PIECE_BYTES,
  parseDescriptor,
} from "./descriptor.ts";

/** A blob in a directory, its `data` written. */
export interface NewBlob {
  readonly dir: string;
  readonly descriptor: BlobDescriptor;
  /**
   * The list of its chunks. Only somebody who saw the data may give it: chunks that come later are not stored where a list says
   * that they are here. Without it the blob's chunks are shared with nobody.
   */
  readonly chunks?: string;
}

/**
 * Blobs in a directory, each named by the hash of its descriptor: there completely or not at all, never changed. Many processes
 * may use one store.
 */
export class BlobStore {
  readonly #dir: string;

  /** `dir`: of the blobs; it exists. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  has(digest: BlobDigest): boolean {
    return existsSync(this.#file(digest, "descriptor"));
  }

  async list(): Promise<readonly BlobDigest[]> {
    return (await readdir(this.#dir)).filter(isHexDigest).map(blobDigest);
  }

  /** When the blob was added, or last added again: milliseconds since 1970; `undefined` when it does not exist. */
  async addedAtMs(digest: BlobDigest): Promise<number | undefined> {
    return (await statOf(this.#file(digest, "descriptor")))?.mtimeMs;
  }

  /** Rejects with `NotFound`, or `Internal` when the stored descriptor was damaged. */
  async descriptor(digest: BlobDigest): Promise<BlobDescriptor> {
    const path = this.#file(digest, "descriptor");
    const size = (await statOf(path))?.size;
    if (size === undefined) throw unknownBlob(digest);
    if (size > MAX_DESCRIPTOR_BYTES) throw damagedBlob(digest, "descriptor");
    return parseDescriptor(await readFile(path, "utf8"), digest);
  }

  /** Where the data lies. Does not look whether the blob exists. */
  dataPath(digest: BlobDigest): string {
    return this.#file(digest, "data");
  }

  /** The list of chunks; `undefined` for a blob that came without. Rejects with `NotFound`, or `Internal` when it was damaged. */
  async chunks(digest: BlobDigest): Promise<string | undefined> {
    const { chunksSha256 } = await this.descriptor(digest);
    try {
      const list = await readFile(this.#file(digest, "chunks"), "latin1");
      if (sha256Hex(list) === chunksSha256) return list;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
    throw damagedBlob(digest, "chunks");
  }

  /**
   * Keeps a blob from being collected, until it is disposed: whoever makes a layer that points into a blob of the store holds it
   * so long. `undefined` when the blob is not there, or is being removed.
   */
  hold(digest: BlobDigest): Disposable | undefined {
    const lock = lockDirectory(this.#path(digest), "shared");
    if (lock === undefined) return undefined;
    const held = { [Symbol.dispose]: () => closeSync(lock) };
    if (this.has(digest)) return held;
    held[Symbol.dispose]();
    return undefined;
  }

  /** Makes what `place` moves complete and durable. */
  async prepare({ dir, descriptor, chunks }: NewBlob): Promise<void> {
    if (chunks !== undefined) await writeNew(join(dir, BLOB_FILES.chunks), chunks);
    await writeNew(join(dir, BLOB_FILES.descriptor), descriptorText(descriptor));
    await syncFiles(dir);
  }

  /** Moves a prepared blob here; an equal one that is here already stays, and counts as new. */
  place({ dir, descriptor }: NewBlob): BlobDigest {
    const digest = digestOfBlob(descriptor);
    try {
      renameSync(dir, this.#path(digest));
    } catch (error) {
      if (!hasCode(error, "EEXIST", "ENOTEMPTY")) throw error;
      this.touch(digest);
    }
    return digest;
  }

  /** A collector that runs now sees the blob as new. */
  touch(digest: BlobDigest): void {
    const now = new Date();
    utimesSync(this.#file(digest, "descriptor"), now, now);
  }

  /** Waits until the names of what was placed are on the disk. */
  async settle(): Promise<void> {
    await syncDirectory(this.#dir);
  }

  /** Takes over a blob: `prepare`, `place`, `settle`. Hold it, or name it in a layer soon: a collector looks at its age. */
  add(blob: NewBlob): Promise<BlobDigest> {
    return typedStorageErrors(async () => {
      await this.prepare(blob);
      const digest = this.place(blob);
      await this.settle();
      return digest;
    });
  }

  /** A quick look: the descriptor is whole and the data has its size. Rejects as `verify` does. */
  async check(digest: BlobDigest): Promise<BlobDescriptor> {
    const descriptor = await this.descriptor(digest);
    if ((await statOf(this.dataPath(digest)))?.size !== descriptor.sizeBytes) throw damagedBlob(digest, "data");
    return descriptor;
  }

  /** Reads everything and compares every hash. Rejects with `NotFound`, or with `Internal` naming the damaged part. */
  async verify(digest: BlobDigest, signal?: AbortSignal): Promise<void> {
    const { pieces, chunksSha256 } = await this.check(digest);
    await using file = await open(this.dataPath(digest), "r");
    const buffer = Buffer.allocUnsafe(PIECE_BYTES);
    for (const [index, expected] of pieces.entries()) {
      signal?.throwIfAborted();
      const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, index * PIECE_BYTES);
      if (sha256Hex(buffer.subarray(0, bytesRead)) !== expected) throw damagedBlob(digest, "data");
    }
    const list = this.#file(digest, "chunks");
    if (existsSync(list) && (await hashFile(list, signal)) !== chunksSha256) throw damagedBlob(digest, "chunks");
  }

  /** Moves a blob to `target` unless somebody holds it: false then. Live mounts of it go on working. */
  takeAway(digest: BlobDigest, target: string): boolean {
    const lock = lockDirectory(this.#path(digest), "exclusive");
    if (lock === undefined) return false;
    renameSync(this.#path(digest), target);
    closeSync(lock);
    return true;
  }

  #path(digest: BlobDigest): string {
    return join(this.#dir, hexOf(digest));
  }

  #file(digest: BlobDigest, file: keyof typeof BLOB_FILES): string {
    return join(this.#path(digest), BLOB_FILES[file]);
  }
}

function unknownBlob(digest: BlobDigest): SandboxError {
  return new SandboxError("NotFound", `the store has no blob ${digest}`, {
    hint: "import the artifact on this node, or point the node at the store that holds it",
    details: { blob: digest },
  });
}
