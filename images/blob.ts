import { hash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { sha256, sha256Hex } from "./digest.ts";
import { alignUp, BLOCK_BYTES, CHUNK_BYTES, HOLE } from "./erofs/format.ts";
import type { DiskRoom } from "./room.ts";

/** The data of a layer and what is known about it. */
export interface BlobInfo {
  readonly sizeBytes: number;
  /** Of the whole blob, hex. */
  readonly sha256: string;
  /** Of each piece of `BLOB_CHUNK_BYTES`, hex: a reader that fetches pieces checks them one by one. */
  readonly chunks: readonly string[];
}

/** The unit in which data is fetched and checked. */
export const BLOB_CHUNK_BYTES = 2 ** 20;

/** Bytes collected before a write: a multiple of `BLOB_CHUNK_BYTES`. */
const STAGE_BYTES = 4 * BLOB_CHUNK_BYTES;
const ZEROS = Buffer.alloc(CHUNK_BYTES);

/**
 * Appends file chunks to a blob, each distinct one once, on block boundaries. `add` never waits and only fills memory; the
 * caller awaits `drain` whenever `isFull`, so that at most a few stages are held.
 */
export class BlobWriter {
  readonly #file: FileHandle;
  readonly #room: DiskRoom;
  readonly #addresses = new Map<string, number>();
  readonly #running = sha256();
  readonly #chunks: string[] = [];
  readonly #full: Buffer<ArrayBuffer>[] = [];
  readonly #spare: Buffer<ArrayBuffer>[] = [];
  #stage = Buffer.allocUnsafe(STAGE_BYTES);
  #staged = 0;
  #sizeBytes = 0;
  #writing: Promise<void> = Promise.resolve();

  constructor(file: FileHandle, room: DiskRoom) {
    this.#file = file;
    this.#room = room;
  }

  get isFull(): boolean {
    return this.#full.length > 0;
  }

  /** The block address of a chunk of at most `CHUNK_BYTES` with these bytes; `HOLE` when all of them are zero. */
  add(bytes: Uint8Array): number {
    if (bytes.length > CHUNK_BYTES) throw new Error("a chunk is larger than the format allows");
    if (ZEROS.subarray(0, bytes.length).equals(bytes)) return HOLE;
    const key = hash("sha256", bytes, "base64url");
    const known = this.#addresses.get(key);
    if (known !== undefined) return known;
    const address = this.#sizeBytes / BLOCK_BYTES;
    this.#addresses.set(key, address);
    this.#append(bytes);
    this.#append(ZEROS.subarray(0, alignUp(bytes.length, BLOCK_BYTES) - bytes.length));
    return address;
  }

  /** Hands the full stages to the disk, one behind the other; waits only while one is still on its way. */
  async drain(): Promise<void> {
    for (;;) {
      const stage = this.#full.shift();
      if (stage === undefined) return;
      await this.#writing;
      this.#writing = this.#write(stage, STAGE_BYTES).then(() => void this.#spare.push(stage));
      // Whoever waits next hears of a failure; nobody may be waiting yet.
      this.#writing.catch(() => undefined);
    }
  }

  /** Writes the rest and makes it durable. A blob is never empty: loop devices and checkers want a block. */
  async finish(): Promise<BlobInfo> {
    if (this.#sizeBytes === 0) this.#append(ZEROS.subarray(0, BLOCK_BYTES));
    await this.drain();
    await this.#writing;
    if (this.#staged > 0) await this.#write(this.#stage, this.#staged);
    await this.#file.sync();
    return { sizeBytes: this.#sizeBytes, sha256: this.#running.hex(), chunks: this.#chunks };
  }

  #append(bytes: Uint8Array): void {
    let rest = bytes;
    this.#sizeBytes += bytes.length;
    while (rest.length > 0) {
      const piece = rest.subarray(0, STAGE_BYTES - this.#staged);
      this.#stage.set(piece, this.#staged);
      this.#staged += piece.length;
      rest = rest.subarray(piece.length);
      if (this.#staged < STAGE_BYTES) continue;
      this.#full.push(this.#stage);
      this.#stage = this.#spare.pop() ?? Buffer.allocUnsafe(STAGE_BYTES);
      this.#staged = 0;
    }
  }

  async #write(stage: Buffer<ArrayBuffer>, length: number): Promise<void> {
    await this.#room.take(length);
    for (let start = 0; start < length; start += BLOB_CHUNK_BYTES) {
      const piece = stage.subarray(start, Math.min(length, start + BLOB_CHUNK_BYTES));
      this.#running.update(piece);
      this.#chunks.push(sha256Hex(piece));
    }
    for (let written = 0; written < length; ) {
      written += (await this.#file.write(stage, written, length - written)).bytesWritten;
    }
  }
}
