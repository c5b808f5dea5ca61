import type { FileHandle } from "node:fs/promises";
import { Stretch } from "../stretch.ts";
import { damaged, readSuperblock, SUPERBLOCK, type Superblock } from "./format.ts";
import { type Inode, parseInode, readExtents } from "./inode.ts";
import { type JournalBlock, MAGIC_BYTES, MOST_JOURNAL_BLOCKS, readJournal } from "./journal.ts";

/** What is kept of the disk: metadata lies together, and so do small files that were written together. */
const PIECE_BYTES = 64 * 1024;
const MOST_PIECES = 128;

/**
 * An ext4 file system in a file, for reading. What is in the file is hostile: nothing in it is believed that could lead out of it, take
 * memory without bound, or go round in circles. A journal that was left is read along: where it has a block, that is the block.
 */
export class Ext4Disk {
  readonly superblock: Superblock;
  readonly #file: FileHandle;
  readonly #stretch: Stretch;
  readonly #pieces = new Map<number, Promise<Buffer>>();
  #journal: ReadonlyMap<number, JournalBlock> = new Map();
  #counted = 0;

  private constructor(file: FileHandle, superblock: Superblock, signal: AbortSignal) {
    this.#file = file;
    this.#stretch = new Stretch(signal);
    this.superblock = superblock;
  }

  /** The file stays the caller's; `signal` ends every later reading. `FailedPrecondition` for what is no such file system, or a damaged one. */
  static async open(file: FileHandle, signal: AbortSignal): Promise<Ext4Disk> {
    const { size } = await file.stat();
    if (size < SUPERBLOCK.offset + SUPERBLOCK.bytes) throw damaged("it is too small");
    const bytes = Buffer.alloc(SUPERBLOCK.bytes);
    await file.read(bytes, 0, SUPERBLOCK.bytes, SUPERBLOCK.offset);
    const superblock = readSuperblock(bytes, size);
    const disk = new Ext4Disk(file, superblock, signal);
    if (superblock.journal !== undefined) await disk.#openJournal(superblock.journal);
    return disk;
  }

  /** Reads `bytes` of the file system. Throws where they reach beyond its end. */
  async read(into: Uint8Array, offset: number): Promise<void> {
    // Nothing goes on without reading, so that whatever the disk makes its reader do, others have their turns.
    await this.#stretch.pause();
    if (into.length >= PIECE_BYTES) return await this.#readNow(into, offset);
    for (let done = 0; done < into.length; ) {
      const at = offset + done;
      const number = Math.floor(at / PIECE_BYTES);
      const piece = await this.#piece(number);
      const part = piece.subarray(at - number * PIECE_BYTES).subarray(0, into.length - done);
      if (part.length === 0) throw damaged("it ends too early");
      into.set(part, done);
      done += part.length;
    }
  }

  /** A new buffer of what lies there. */
  async bytes(size: number, offset: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(size);
    await this.read(bytes, offset);
    return bytes;
  }

  block(number: number): Promise<Buffer> {
    return this.bytes(this.superblock.blockBytes, number * this.superblock.blockBytes);
  }

  /**
   * Counts blocks that are one file's alone, before they are read. Throws where they are more than a disk has, with as many again for what is read twice: then some are in
   * several files, and a small disk could keep its reader busy for ever.
   */
  count(blocks: number): void {
    this.#counted += blocks;
    if (this.#counted > 2 * this.superblock.blocks) throw damaged("blocks of it are in several places");
  }

  /** A block that is one file's alone. */
  ownBlock(number: number): Promise<Buffer> {
    this.count(1);
    return this.block(number);
  }

  /** Throws for a number that no inode has. */
  async inode(number: number): Promise<Inode> {
    const { blockBytes, firstBlock, inodesPerGroup, inodes, inodeBytes, descriptorBytes } = this.superblock;
    if (number < 1 || number > inodes) throw damaged(`there is no inode ${number}`);
    const group = Math.floor((number - 1) / inodesPerGroup);
    const descriptor = await this.bytes(descriptorBytes, (firstBlock + 1) * blockBytes + group * descriptorBytes);
    const high = descriptorBytes >= 64 ? descriptor.readUInt32LE(0x28) : 0;
    const table = descriptor.readUInt32LE(0x8) + high * 2 ** 32;
    const place = table * blockBytes + ((number - 1) % inodesPerGroup) * inodeBytes;
    return parseInode(number, await this.bytes(inodeBytes, place));
  }

  async #openJournal(number: number): Promise<void> {
    const inode = await this.inode(number);
    const { blockBytes } = this.superblock;
    const places: number[] = [];
    for await (const { first, count, start } of readExtents(this, inode)) {
      if (first !== places.length || first + count > MOST_JOURNAL_BLOCKS) throw damaged("its journal has holes");
      if (start + count > this.superblock.blocks) throw damaged("its journal reaches behind its end");
      for (let n = 0; n < count; n += 1) places.push(start + n);
    }
    const journal = await readJournal({ blockBytes, places, block: (place) => this.block(place) });
    this.#pieces.clear();
    this.#journal = journal;
  }

  #piece(number: number): Promise<Buffer> {
    const kept = this.#pieces.get(number) ?? this.#load(number);
    // What was used last goes last.
    this.#pieces.delete(number);
    this.#pieces.set(number, kept);
    const oldest = this.#pieces.keys().next().value;
    if (this.#pieces.size > MOST_PIECES && oldest !== undefined) this.#pieces.delete(oldest);
    return kept;
  }

  async #load(number: number): Promise<Buffer> {
    const end = this.superblock.blocks * this.superblock.blockBytes;
    const offset = number * PIECE_BYTES;
    const piece = Buffer.allocUnsafe(Math.max(0, Math.min(PIECE_BYTES, end - offset)));
    await this.#readNow(piece, offset);
    return piece;
  }

  /** Blocks that the journal has are whole in what is read from here: it begins and ends with one, or has none of them. */
  async #readNow(into: Uint8Array, offset: number): Promise<void> {
    const { blockBytes, blocks } = this.superblock;
    if (offset + into.length > blocks * blockBytes) throw damaged("it points behind its end");
    await this.#fill(into, offset);
    if (this.#journal.size === 0) return;
    for (let at = Math.floor(offset / blockBytes) * blockBytes; at < offset + into.length; at += blockBytes) {
      const newer = this.#journal.get(at / blockBytes);
      if (newer !== undefined) await this.#overwrite(into, at - offset, newer);
    }
  }

  /** All of it: what is not read is not the disk's, but whatever this process had there. */
  async #fill(into: Uint8Array, offset: number): Promise<void> {
    for (let done = 0; done < into.length; ) {
      const { bytesRead } = await this.#file.read(into, done, into.length - done, offset + done);
      if (bytesRead === 0) throw damaged("it ends too early");
      done += bytesRead;
    }
  }

  async #overwrite(into: Uint8Array, at: number, { place, escaped }: JournalBlock): Promise<void> {
    const { blockBytes } = this.superblock;
    const block = Buffer.allocUnsafe(blockBytes);
    await this.#fill(block, place * blockBytes);
    if (escaped) block.set(MAGIC_BYTES);
    const from = Math.max(0, -at);
    into.set(block.subarray(from, Math.min(blockBytes, into.length - at)), at + from);
  }
}
