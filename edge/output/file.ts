import { closeSync, mkdirSync, openSync, readSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { hasCode } from "#core/errors.ts";

/** Before the bytes: u64 bytes stored, u64 bytes that a write under way will reach, u64 cap; little-endian. */
const HEADER_BYTES = 24;

/**
 * The kept part of one output stream on disk, at most `capBytes` of it: the first half of the cap stands at its place, behind it
 * the last half goes round as a ring. Exact after a crash at any point: a write into the ring first says how far it will reach,
 * so that bytes it may have overwritten are never given out as what they were.
 *
 * Writes go to the page cache and are not synced: they outlive the process, which is what the journal promises as well.
 */
export class OutputFile implements Disposable {
  readonly #fd: number;
  #capBytes: number;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #stored: number;
  /** One past the last byte whose writing was begun. */
  #reached: number;

  private constructor(fd: number, capBytes: number, stored: number, reached: number) {
    this.#fd = fd;
    this.#capBytes = capBytes;
    this.#stored = stored;
    this.#reached = reached;
  }

  /** Makes an empty file, over any old one. */
  static create(path: string, capBytes: number): OutputFile {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const file = new OutputFile(openSync(path, "w+", 0o600), capBytes, 0, 0);
    file.#mark(0, 0);
    return file;
  }

  /** Opens what a process before this one wrote; undefined when that died before it had written anything. */
  static open(path: string): OutputFile | undefined {
    let fd: number;
    try {
      fd = openSync(path, "r+");
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
    const header = Buffer.alloc(HEADER_BYTES);
    if (readSync(fd, header, 0, HEADER_BYTES, 0) < HEADER_BYTES) {
      closeSync(fd);
      return undefined;
    }
    const [stored, reached, cap] = [0, 8, 16].map((at) => Number(header.readBigUInt64LE(at)));
    return new OutputFile(fd, cap ?? 0, stored ?? 0, reached ?? 0);
  }

  get capBytes(): number {
    return this.#capBytes;
  }

  /** Lowers the cap, to no less than what is stored: up to there every byte is at its place, whatever the cap. */
  lowerCap(capBytes: number): void {
    if (capBytes >= this.#capBytes) return;
    if (capBytes < this.#stored) throw new Error(`a cap of ${capBytes} bytes under ${this.#stored} stored`);
    this.#capBytes = capBytes;
    this.#mark(this.#stored, this.#reached);
  }

  /** Bytes of the stream that passed through here. */
  get stored(): number {
    return this.#stored;
  }

  get headBytes(): number {
    return Math.floor(this.#capBytes / 2);
  }

  get tailBytes(): number {
    return this.#capBytes - this.headBytes;
  }

  /** Where the readable tail begins; what lies between the head and it was dropped. */
  get tailFrom(): number {
    return Math.max(this.headBytes, Math.max(this.#reached, this.#stored) - this.tailBytes);
  }

  /** The next bytes of the stream. Throws the system's error; what was stored before stays readable. */
  append(bytes: Uint8Array): void {
    const end = this.#stored + bytes.length;
    if (end > this.#capBytes) {
      this.#reached = Math.max(this.#reached, end);
      this.#mark(this.#stored, this.#reached);
    }
    this.#place(bytes);
    this.#stored = end;
    this.#reached = Math.max(this.#reached, end);
    this.#mark(end, this.#reached);
  }

  /** Bytes from `offset` on, which must be readable; as many as lie together and fit into `buffer`: a view of it. */
  read(offset: number, buffer: Buffer): Uint8Array {
    const { at, together } = this.#locate(offset);
    const bytes = buffer.subarray(0, Math.min(together, this.#stored - offset));
    const length = readSync(this.#fd, bytes, 0, bytes.length, HEADER_BYTES + at);
    if (length < bytes.length)
      throw new Error(`output file is shorter than it says: ${length} of ${bytes.length} bytes`);
    return bytes;
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  #place(bytes: Uint8Array): void {
    const offset = this.#stored;
    let from = 0;
    while (from < bytes.length) {
      const { at, together } = this.#locate(offset + from);
      const part = bytes.subarray(from, from + together);
      writeFully(this.#fd, part, HEADER_BYTES + at);
      from += part.length;
    }
  }

  #locate(offset: number): { readonly at: number; readonly together: number } {
    const head = this.headBytes;
    if (offset < head) return { at: offset, together: head - offset };
    const inRing = (offset - head) % this.tailBytes;
    return { at: head + inRing, together: this.tailBytes - inRing };
  }

  #mark(stored: number, reached: number): void {
    this.#header.writeBigUInt64LE(BigInt(stored), 0);
    this.#header.writeBigUInt64LE(BigInt(reached), 8);
    this.#header.writeBigUInt64LE(BigInt(this.#capBytes), 16);
    writeFully(this.#fd, this.#header, 0);
  }
}

function writeFully(fd: number, bytes: Uint8Array, position: number): void {
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(fd, bytes, done, bytes.length - done, position + done);
  }
}
