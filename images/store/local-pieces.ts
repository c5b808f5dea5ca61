import { closeSync, openSync, readSync } from "node:fs";
import { type BlobChunk, type BlobDescriptor, parseChunks } from "../blobs/descriptor.ts";
import type { KnownChunks } from "../blobs/known-chunks.ts";
import { type BlobDigest, isHexDigest, sha256, sha256Hex } from "../digest.ts";
import { BLOCK_BYTES, CHUNK_BYTES } from "../erofs/format.ts";
import type { LayerStore } from "../store.ts";

/**
 * Pieces of a blob that the node can put together of chunks that it has in other blobs, as the blob's list of chunks says. Only what has
 * the hash of the piece is given: a list is a hint. What was used stays on the node until this is disposed.
 */
export class LocalPieces implements Disposable {
  readonly #layers: LayerStore;
  readonly #descriptor: BlobDescriptor;
  readonly #chunks: readonly BlobChunk[];
  readonly #stack = new DisposableStack();
  readonly #known: KnownChunks;
  readonly #files = new Map<BlobDigest, number>();
  /** The first chunk that ends behind the piece before. */
  #index = 0;

  /** `list`: the chunks of the blob, as `soundChunks` gives them. */
  constructor(layers: LayerStore, descriptor: BlobDescriptor, list: readonly BlobChunk[]) {
    this.#layers = layers;
    this.#descriptor = descriptor;
    this.#chunks = list;
    this.#known = this.#stack.use(layers.knownChunks());
  }

  /** The piece, if the node has all of it. To be called in the order of pieces. */
  take(piece: number): Buffer | undefined {
    const { pieceBytes, sizeBytes, pieces } = this.#descriptor;
    const start = piece * pieceBytes;
    const end = Math.min(start + pieceBytes, sizeBytes);
    const chunks = this.#chunksOf(start, end);
    const bytes = Buffer.alloc(chunks.length === 0 ? 0 : end - start);
    for (const chunk of chunks) {
      const found = this.#known.find(chunk.digest);
      if (found === undefined) return undefined;
      const offset = chunk.block * BLOCK_BYTES;
      const from = Math.max(offset, start);
      const count = Math.min(offset + chunk.bytes, end) - from;
      readSync(this.#file(found.blob), bytes, from - start, count, found.block * BLOCK_BYTES + from - offset);
    }
    return sha256Hex(bytes) === pieces[piece] ? bytes : undefined;
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }

  #chunksOf(start: number, end: number): readonly BlobChunk[] {
    const chunks: BlobChunk[] = [];
    for (let at = this.#index; ; at++) {
      const chunk = this.#chunks[at];
      if (chunk === undefined || chunk.block * BLOCK_BYTES >= end) return chunks;
      if (chunk.block * BLOCK_BYTES + chunk.bytes <= start) this.#index = at + 1;
      else chunks.push(chunk);
    }
  }

  #file(blob: BlobDigest): number {
    const known = this.#files.get(blob);
    if (known !== undefined) return known;
    const fd = openSync(this.#layers.blobs.dataPath(blob), "r");
    this.#stack.defer(() => closeSync(fd));
    this.#files.set(blob, fd);
    return fd;
  }
}

/**
 * Compares a list of chunks with the data that goes by. A list that came from elsewhere decides what later layers show, and may be kept
 * only when it is true.
 */
export class ListCheck {
  readonly #chunks: readonly BlobChunk[];
  #running = sha256();
  /** Of the chunk that goes by. */
  #index = 0;
  /** Bytes that went by. */
  #at = 0;
  #isTrue = true;

  /** `list`: as `soundChunks` gives it. */
  constructor(list: readonly BlobChunk[]) {
    this.#chunks = list;
  }

  push(data: Uint8Array): void {
    const base = this.#at;
    this.#at += data.length;
    for (
      let chunk = this.#chunks[this.#index];
      chunk !== undefined && this.#isTrue;
      chunk = this.#chunks[this.#index]
    ) {
      const start = chunk.block * BLOCK_BYTES - base;
      if (start >= data.length) return;
      this.#running.update(data.subarray(Math.max(0, start), start + chunk.bytes));
      if (start + chunk.bytes > data.length) return;
      this.#isTrue = this.#running.hex() === chunk.digest;
      this.#running = sha256();
      this.#index += 1;
    }
  }

  /** After all of the data: whether every chunk of the list is in it where the list says. */
  get isTrue(): boolean {
    return this.#isTrue && this.#index === this.#chunks.length;
  }
}

/** The chunks of a list that may be anything; `undefined` unless they lie one behind the other within a blob. */
export function soundChunks(list: string, { sizeBytes }: BlobDescriptor): readonly BlobChunk[] | undefined {
  const chunks: BlobChunk[] = [];
  let end = 0;
  for (const chunk of parseChunks(list)) {
    const start = chunk.block * BLOCK_BYTES;
    const isWhole = Number.isSafeInteger(start) && Number.isSafeInteger(chunk.bytes) && isHexDigest(chunk.digest);
    if (!isWhole || start < end || chunk.bytes <= 0 || chunk.bytes > CHUNK_BYTES) return undefined;
    end = start + chunk.bytes;
    if (end > sizeBytes) return undefined;
    chunks.push(chunk);
  }
  return chunks;
}
