import { closeSync, fdatasync, openSync, readFileSync, statSync, write, writeSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { PieceSet } from "#host/lazy/pieces.ts";
import type { LazyFile, Mechanism } from "#host/lazy/requests.ts";
import { fileId } from "#host/lazy/server.ts";
import { type BlobDescriptor, parseDescriptor } from "../blobs/descriptor.ts";
import { type BlobDigest, hexOf } from "../digest.ts";
import { typedStorageErrors } from "../durable.ts";
import type { Fetchable } from "./fetcher.ts";

/** Names of the files of a cached blob. */
export const CACHED_FILES = { descriptor: "blob.json", data: "data", present: "present" } as const;

/** What a blob tells its cache. */
export interface CachedBlobOptions {
  readonly mechanism: Mechanism;
  /** Makes room for bytes that will be written. */
  makeRoom(bytes: number): Promise<void>;
  /** Bytes that had not been there are. */
  onGrowth(bytes: number): void;
  /** Every piece is here. */
  onComplete(blob: CachedBlob): void;
}

/** A blob of which some pieces are here. */
export class CachedBlob implements Fetchable {
  readonly digest: BlobDigest;
  readonly descriptor: BlobDescriptor;
  /** Of the data, which has holes. */
  readonly path: string;
  readonly file: LazyFile;
  /** When it was last read or held: milliseconds since 1970. */
  usedAtMs: number;
  readonly #options: CachedBlobOptions;
  readonly #presentFd: number;
  #presentBytes: number;
  #isDirty = false;
  #writing = 0;
  #isClosed = false;

  /** Opens what lies in `dir`. Throws when it is damaged. */
  constructor(digest: BlobDigest, dir: string, options: CachedBlobOptions) {
    this.#options = options;
    this.digest = digest;
    this.descriptor = parseDescriptor(readFileSync(join(dir, CACHED_FILES.descriptor), "utf8"), digest);
    this.path = join(dir, CACHED_FILES.data);
    const { sizeBytes, pieceBytes } = this.descriptor;
    if (statSync(this.path).size !== sizeBytes) throw new Error(`${this.path} has not the size of its blob`);
    const present = new PieceSet(sizeBytes, pieceBytes);
    const presentPath = join(dir, CACHED_FILES.present);
    present.load(readFileSync(presentPath));
    this.usedAtMs = statSync(presentPath).mtimeMs;
    this.#presentFd = openSync(presentPath, "r+");
    const fd = openSync(this.path, "r+");
    const name = hexOf(digest);
    const [touched, marks] = [new PieceSet(sizeBytes, pieceBytes), new PieceSet(sizeBytes, pieceBytes)];
    const counts = new Int32Array(new SharedArrayBuffer(8));
    this.#presentBytes = bytesOf(present);
    this.file = { name, id: fileId(options.mechanism, name, fd), fd, present, touched, marks, counts };
  }

  has(piece: number): boolean {
    return this.file.present.has(piece);
  }

  get isComplete(): boolean {
    return this.#presentBytes === this.descriptor.sizeBytes;
  }

  /** Pieces are being written. */
  get isBusy(): boolean {
    return this.#writing > 0;
  }

  /** Of the pieces that are here. */
  get presentBytes(): number {
    return this.#presentBytes;
  }

  /** Rejects with `StorageFull` when the cache or its disk is. */
  async write(first: number, bytes: Buffer): Promise<void> {
    if (this.#isClosed) throw new Error(`blob ${this.digest} has left the cache`);
    this.#writing += 1;
    try {
      await typedStorageErrors(() => this.#write(first, bytes));
    } finally {
      this.#writing -= 1;
    }
    if (this.isComplete) this.#options.onComplete(this);
  }

  /** Notes on the disk which pieces are there, after the pieces themselves. A failure is made good by the next call that succeeds. */
  async flush(): Promise<void> {
    if (!this.#isDirty) return;
    this.#isDirty = false;
    const bits = this.file.present.copy();
    this.#writing += 1;
    try {
      await dataToDisk(this.file.fd);
      writeSync(this.#presentFd, bits, 0, bits.length, 0);
    } catch (error) {
      this.#isDirty = true;
      throw error;
    } finally {
      this.#writing -= 1;
    }
  }

  /** Nobody may read it any more, and it must not be busy. */
  close(): void {
    this.#isClosed = true;
    // A thread that reads at this moment looks at the bits afterwards: what it got counts for nothing then.
    this.file.present.clear();
    closeSync(this.file.fd);
    closeSync(this.#presentFd);
  }

  async #write(first: number, bytes: Buffer): Promise<void> {
    const { fd, present } = this.file;
    await this.#options.makeRoom(bytes.length);
    const start = first * present.pieceBytes;
    for (let done = 0; done < bytes.length; ) {
      done += (await writeAt(fd, bytes, done, bytes.length - done, start + done)).bytesWritten;
    }
    const { end } = present.span(start, bytes.length);
    for (let piece = first; piece < end; piece++) if (present.add(piece)) this.#grow(present.bytesOf(piece));
    this.#isDirty = true;
  }

  #grow(bytes: number): void {
    this.#presentBytes += bytes;
    this.#options.onGrowth(bytes);
  }
}

function bytesOf(present: PieceSet): number {
  let bytes = 0;
  for (let piece = 0; piece < present.count; piece++) if (present.has(piece)) bytes += present.bytesOf(piece);
  return bytes;
}

const writeAt = promisify(write);
const dataToDisk = promisify(fdatasync);
