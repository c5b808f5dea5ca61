import type { Ext4Disk } from "./disk.ts";
import type { BlockRun, Inode } from "./inode.ts";

/** Blocks that an inode names itself; the places behind them name blocks of names, of such blocks, and of those again. */
const DIRECT = 12;
const LEVELS = 3;
const POINTER_BYTES = 4;

/** Where the data of a file is that has no extents: its owner may ask for that. In its order, up to its size; what is nowhere is a hole. */
export async function* readBlockMap(disk: Ext4Disk, inode: Inode): AsyncGenerator<BlockRun, void, undefined> {
  const { blockBytes } = disk.superblock;
  const end = Math.ceil(inode.size / blockBytes);
  for (let first = 0; first < Math.min(DIRECT, end); first += 1) {
    yield* runOf(first, inode.body.readUInt32LE(first * POINTER_BYTES));
  }
  const fanOut = blockBytes / POINTER_BYTES;
  let first = DIRECT;
  for (let level = 1; level <= LEVELS && first < end; level += 1) {
    const block = inode.body.readUInt32LE((DIRECT + level - 1) * POINTER_BYTES);
    yield* readLevel(disk, { block, level, first, end });
    first += fanOut ** level;
  }
}

interface Branch {
  readonly block: number;
  readonly level: number;
  /** Number in the file of the first block below. */
  readonly first: number;
  readonly end: number;
}

async function* readLevel(
  disk: Ext4Disk,
  { block, level, first, end }: Branch,
): AsyncGenerator<BlockRun, void, undefined> {
  if (block === 0) return;
  const names = await disk.ownBlock(block);
  const below = (names.length / POINTER_BYTES) ** (level - 1);
  for (let at = 0; at * POINTER_BYTES < names.length; at += 1) {
    const begin = first + at * below;
    if (begin >= end) return;
    const next = names.readUInt32LE(at * POINTER_BYTES);
    if (level === 1) yield* runOf(begin, next);
    else yield* readLevel(disk, { block: next, level: level - 1, first: begin, end });
  }
}

function* runOf(first: number, start: number): Generator<BlockRun, void, undefined> {
  if (start !== 0) yield { first, count: 1, start };
}
