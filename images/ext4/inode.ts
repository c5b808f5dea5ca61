import type { FileType } from "#core/sandbox.ts";
import { readBlockMap } from "./block-map.ts";
import type { Ext4Disk } from "./disk.ts";
import { damaged } from "./format.ts";

const TYPES: Readonly<Record<number, FileType>> = {
  1: "fifo",
  2: "character-device",
  4: "directory",
  6: "block-device",
  8: "file",
  10: "symlink",
  12: "socket",
};
const EXTENTS_FLAG = 0x80000;
const EXTENT_MAGIC = 0xf30a;
const EXTENT_BYTES = 12;
/** As deep as the kernel makes it. */
const MOST_LEVELS = 5;
/** Extents of more are of that many less, and unwritten: they are read as zeros. */
const WRITTEN_BLOCKS = 32_768;
/** A link no longer than this lies in its inode. */
const SHORT_LINK_BYTES = 59;
const [BODY_AT, BODY_BYTES] = [0x28, 60];
const SMALL_BYTES = 128;

/** A file as the disk has it. */
export interface Inode {
  readonly number: number;
  readonly type: FileType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly size: number;
  readonly mtimeS: number;
  readonly mtimeNs: number;
  readonly major: number;
  readonly minor: number;
  /** Block with more attributes, 0: none. */
  readonly attributes: number;
  readonly hasExtents: boolean;
  /** What its data is, or where. */
  readonly body: Buffer;
  /** Behind its fields: attributes. */
  readonly rest: Buffer;
}

/** A run of blocks of a file. */
export interface BlockRun {
  /** Number in the file of the first. */
  readonly first: number;
  readonly count: number;
  /** Number on the disk of the first. */
  readonly start: number;
}

/** Reads an inode. Throws for one that is no file. */
export function parseInode(number: number, bytes: Buffer): Inode {
  const mode = bytes.readUInt16LE(0);
  const type = TYPES[mode >> 12];
  if (type === undefined || bytes.readUInt16LE(0x1a) === 0) throw damaged(`inode ${number} is no file`);
  const size = bytes.readUInt32LE(0x4) + bytes.readUInt32LE(0x6c) * 2 ** 32;
  if (!Number.isSafeInteger(size)) throw damaged(`the size of inode ${number}`);
  const isLarge = bytes.length > SMALL_BYTES;
  const extra = isLarge ? bytes.readUInt16LE(0x80) : 0;
  // Where it has room for that: nanoseconds, and below them two more bits of the seconds.
  const fine = isLarge && extra >= 12 ? bytes.readUInt32LE(0x88) : 0;
  const body = bytes.subarray(BODY_AT, BODY_AT + BODY_BYTES);
  return {
    ...{ number, type, size, body, mode: mode & 0o7777, links: bytes.readUInt16LE(0x1a) },
    uid: bytes.readUInt16LE(0x2) + bytes.readUInt16LE(0x78) * 2 ** 16,
    gid: bytes.readUInt16LE(0x18) + bytes.readUInt16LE(0x7a) * 2 ** 16,
    mtimeS: bytes.readInt32LE(0x10) + (fine & 3) * 2 ** 32,
    mtimeNs: Math.min(fine >>> 2, 999_999_999),
    ...deviceOf(type, body),
    attributes: bytes.readUInt32LE(0x68) + bytes.readUInt16LE(0x76) * 2 ** 32,
    hasExtents: (bytes.readUInt32LE(0x20) & EXTENTS_FLAG) !== 0,
    rest: bytes.subarray(Math.min(bytes.length, SMALL_BYTES + extra)),
  };
}

function deviceOf(type: FileType, body: Buffer): { readonly major: number; readonly minor: number } {
  if (type !== "character-device" && type !== "block-device") return { major: 0, minor: 0 };
  const [old, wide] = [body.readUInt16LE(0), body.readUInt32LE(4)];
  if (old !== 0) return { major: old >> 8, minor: old & 0xff };
  return { major: (wide >> 8) & 0xfff, minor: (wide & 0xff) | ((wide >>> 12) & 0xfff00) };
}

/** The target of a symbolic link. */
export async function readTarget(disk: Ext4Disk, inode: Inode): Promise<Buffer> {
  const { size } = inode;
  if (size <= SHORT_LINK_BYTES && !inode.hasExtents) return inode.body.subarray(0, size);
  if (size >= disk.superblock.blockBytes) throw damaged(`the link of inode ${inode.number}`);
  for await (const { first, start } of readExtents(disk, inode)) {
    if (first === 0) return (await disk.block(start)).subarray(0, size);
  }
  throw damaged(`the link of inode ${inode.number} has no target`);
}

/** A node of the tree of extents. */
interface Node {
  readonly block: Buffer;
  readonly depth: number;
  at: number;
  readonly end: number;
}

/**
 * Where the data of a file is, in its order; what lies between is a hole. Each run begins behind the end of the one before, and each branch of the tree behind
 * the beginning of the one before, or it is damaged: so nothing goes round in circles.
 */
export async function* readExtents(disk: Ext4Disk, inode: Inode): AsyncGenerator<BlockRun, void, undefined> {
  if (!inode.hasExtents) return yield* readBlockMap(disk, inode);
  const bad = () => damaged(`the extents of inode ${inode.number}`);
  const way = [nodeOf(inode.body, undefined, bad)];
  const branches: number[] = [];
  let next = 0;
  for (let node = way.at(-1); node !== undefined; node = way.at(-1)) {
    if (node.at === node.end) {
      way.pop();
      continue;
    }
    const at = node.at;
    node.at += EXTENT_BYTES;
    const first = node.block.readUInt32LE(at);
    if (node.depth > 0) {
      if (first < next || first <= (branches[node.depth] ?? -1)) throw bad();
      branches[node.depth] = first;
      const child = node.block.readUInt32LE(at + 4) + node.block.readUInt16LE(at + 8) * 2 ** 32;
      way.push(nodeOf(await disk.ownBlock(child), node.depth - 1, bad));
      continue;
    }
    const length = node.block.readUInt16LE(at + 4);
    const isWritten = length <= WRITTEN_BLOCKS;
    const count = isWritten ? length : length - WRITTEN_BLOCKS;
    if (first < next || count === 0) throw bad();
    next = first + count;
    const start = node.block.readUInt32LE(at + 8) + node.block.readUInt16LE(at + 6) * 2 ** 32;
    if (isWritten) yield { first, count, start };
  }
}

function nodeOf(block: Buffer, depth: number | undefined, bad: () => Error): Node {
  const [count, found] = [block.readUInt16LE(2), block.readUInt16LE(6)];
  const end = EXTENT_BYTES * (count + 1);
  if (block.readUInt16LE(0) !== EXTENT_MAGIC || end > block.length) throw bad();
  if (depth === undefined ? found > MOST_LEVELS : found !== depth) throw bad();
  return { block, depth: found, at: EXTENT_BYTES, end };
}
