import { hash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { type BlobDigest, sha256Hex } from "../digest.ts";
import { alignUp, BLOCK_BYTES, CHUNK_BYTES, chunkAddress, deviceOf, HOLE } from "../erofs/format.ts";
import type { DiskRoom } from "../room.ts";
import { type BlobDescriptor, chunkLine, PIECE_BYTES } from "./descriptor.ts";

/** A chunk that a blob of the store has already. */
export interface KnownChunk {
  readonly blob: BlobDigest;
  readonly block: number;
}

/** Finds chunks in the store by the hex of their SHA-256. */
export type FindChunk = (digest: string) => KnownChunk | undefined;

/** What was written. */
export interface WrittenBlob {
  readonly descriptor: BlobDescriptor;
  /** The list of its chunks. */
  readonly chunks: string;
}

/** The device that stands for the blob being written in the addresses of chunks. Others count from here. */
export const OWN_DEVICE = 1;

/** Bytes collected before a write: a multiple of `PIECE_BYTES`. */
const STAGE_BYTES = 2 ** 22;
const ZEROS = Buffer.alloc(CHUNK_BYTES);

/**
 * Appends to a blob the file chunks that the store lacks, each distinct one once, on block boundaries. `add` never waits and
 * only fills memory; the caller awaits `drain` whenever `isFull`, so that at most a few stages are held.
 */
export class BlobWriter {
  readonly #file: FileHandle;
  readonly #room: DiskRoom;
  readonly #find: FindChunk;
  /** By digest, in the order of their first use. */
  readonly #addresses = new Map<string, number>();
  readonly #digests = new Map<number, string>();
  readonly #devices = new Map<BlobDigest, number>();
  readonly #lengths: number[] = [];
  readonly #pieces: string[] = [];
  readonly #full: Buffer<ArrayBuffer>[] = [];
  readonly #spare: Buffer<ArrayBuffer>[] = [];
  #stage = Buffer.allocUnsafe(STAGE_BYTES);
  #staged = 0;
  #sizeBytes = 0;
  #usedBytes = 0;
  #writing: Promise<void> = Promise.resolve();

  constructor(file: FileHandle, room: DiskRoom, find: FindChunk) {
    this.#file = file;
    this.#room = room;
    this.#find = find;
  }

  get isFull(): boolean {
    return this.#full.length > 0;
  }

  /** Blocks of all distinct chunks that were added, wherever they lie, in bytes. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** The blobs of the store that addresses name, by their device. */
  get devices(): ReadonlyMap<BlobDigest, number> {
    return this.#devices;
  }

  /** The address of a chunk of at most `CHUNK_BYTES` with these bytes; `HOLE` when all of them are zero. */
  add(bytes: Uint8Array): number {
    if (bytes.length > CHUNK_BYTES) throw new Error("a chunk is larger than the format allows");
    // Most data says so with its first byte.
    if ((bytes[0] ?? 0) === 0 && ZEROS.subarray(0, bytes.length).equals(bytes)) return HOLE;
    const digest = hash("sha256", bytes, "hex");
    const known = this.#addresses.get(digest);
    if (known !== undefined) return known;
    const address = this.#addressInStore(digest) ?? this.#append(bytes);
    this.#usedBytes += alignUp(bytes.length, BLOCK_BYTES);
    this.#addresses.set(digest, address);
    this.#digests.set(address, digest);
    return address;
  }

  /** The SHA-256, hex, of the chunk at an address that `add` gave. */
  digestAt(address: number): string {
    return this.#digests.get(address) ?? "";
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

  /** Writes the rest. `undefined` when the store had every chunk: then there is no blob. */
  async finish(): Promise<WrittenBlob | undefined> {
    await this.drain();
    await this.#writing;
    if (this.#sizeBytes === 0) return undefined;
    if (this.#staged > 0) await this.#write(this.#stage, this.#staged);
    const chunks = this.#list();
    const chunksSha256 = sha256Hex(chunks);
    const [sizeBytes, pieces] = [this.#sizeBytes, this.#pieces];
    return { descriptor: { version: 1, sizeBytes, pieceBytes: PIECE_BYTES, pieces, chunksSha256 }, chunks };
  }

  #list(): string {
    const lines: string[] = [];
    for (const [digest, address] of this.#addresses) {
      if (deviceOf(address) !== OWN_DEVICE) continue;
      const bytes = this.#lengths[lines.length] ?? 0;
      lines.push(chunkLine({ digest, block: address - chunkAddress(OWN_DEVICE, 0), bytes }));
    }
    return lines.join("");
  }

  #addressInStore(digest: string): number | undefined {
    const found = this.#find(digest);
    if (found === undefined) return undefined;
    let device = this.#devices.get(found.blob);
    if (device === undefined) {
      device = OWN_DEVICE + 1 + this.#devices.size;
      this.#devices.set(found.blob, device);
    }
    return chunkAddress(device, found.block);
  }

  #append(bytes: Uint8Array): number {
    const address = chunkAddress(OWN_DEVICE, this.#sizeBytes / BLOCK_BYTES);
    this.#lengths.push(bytes.length);
    this.#collect(bytes);
    this.#collect(ZEROS.subarray(0, alignUp(bytes.length, BLOCK_BYTES) - bytes.length));
    return address;
  }

  #collect(bytes: Uint8Array): void {
    let rest = bytes;
    this.#sizeBytes += bytes.length;
    while (rest.length > 0) {
      const part = rest.subarray(0, STAGE_BYTES - this.#staged);
      this.#stage.set(part, this.#staged);
      this.#staged += part.length;
      rest = rest.subarray(part.length);
      if (this.#staged < STAGE_BYTES) continue;
      this.#full.push(this.#stage);
      this.#stage = this.#spare.pop() ?? Buffer.allocUnsafe(STAGE_BYTES);
      this.#staged = 0;
    }
  }

  async #write(stage: Buffer<ArrayBuffer>, length: number): Promise<void> {
    await this.#room.take(length);
    // One piece at a time: for larger writes the kernel looks for larger pages, which costs several times as much when memory is in use.
    for (let start = 0; start < length; start += PIECE_BYTES) {
      const piece = stage.subarray(start, Math.min(length, start + PIECE_BYTES));
      this.#pieces.push(sha256Hex(piece));
      for (let written = 0; written < piece.length; ) {
        written += (await this.#file.write(piece, written, piece.length - written)).bytesWritten;
      }
    }
  }
}
