import { setImmediate } from "node:timers/promises";
import { listing, splitBlocks } from "./directory.ts";
import { alignUp, BLOCK_BYTES, CHUNK_INDEX_BYTES, FIRST_INODE_OFFSET, INODE_BYTES, NID_UNIT_BYTES } from "./format.ts";
import type { Inode } from "./inode.ts";
import { xattrBytes } from "./xattrs.ts";

/** Where one inode and what belongs to it go. */
export interface Placement {
  readonly inode: Inode;
  /** The directory a directory lies in; the root is its own parent. Of other inodes, one that names it. */
  readonly parent: Inode;
  /** Whole blocks outside the inode, 0 when there are none. */
  blockAddress: number;
  readonly blocks: number;
  /** The end of the content follows the inode itself. */
  readonly inline: boolean;
  /** Bytes of a directory's or a link's content. */
  readonly size: number;
}

/** The whole image before a byte of it is written. */
export interface Plan {
  readonly placements: readonly Placement[];
  readonly blocks: number;
}

/** Inodes handled between two turns of the event loop. */
export const INODES_A_TURN = 4096;

/** Gives every inode below `root` its number, its link count and its place. Breadth first, so that neighbours are near. */
export async function plan(root: Inode): Promise<Plan> {
  const placements: Placement[] = [];
  let cursor = FIRST_INODE_OFFSET;
  for (const { inode, parent } of collect(root)) {
    const placed = place(inode, parent, cursor);
    inode.nid = placed.offset / NID_UNIT_BYTES;
    cursor = placed.end;
    placements.push(placed.placement);
    if (placements.length % INODES_A_TURN === 0) await setImmediate();
  }
  let blocks = alignUp(cursor, BLOCK_BYTES) / BLOCK_BYTES;
  for (const placement of placements) {
    if (placement.blocks === 0) continue;
    placement.blockAddress = blocks;
    blocks += placement.blocks;
  }
  return { placements, blocks };
}

/** Every inode once, parents first; counts links on the way. */
function collect(root: Inode): { inode: Inode; parent: Inode }[] {
  const found = [{ inode: root, parent: root }];
  const seen = new Set<Inode>();
  root.links = 2;
  for (const { inode: directory } of found) {
    if (directory.content.type !== "directory") continue;
    for (const [, child] of [...directory.content.children].sort(([a], [b]) => (a < b ? -1 : 1))) {
      if (child.content.type === "directory") {
        child.links = 2;
        directory.links++;
      } else if (seen.has(child)) {
        child.links++;
        continue;
      } else {
        child.links = 1;
        seen.add(child);
      }
      found.push({ inode: child, parent: directory });
    }
  }
  return found;
}

function place(inode: Inode, parent: Inode, cursor: number): { placement: Placement; offset: number; end: number } {
  const head = INODE_BYTES + xattrBytes(inode.attributes.xattrs);
  const { size, fullBlocks, tailBytes } = contentOf(inode, parent);
  const inline = tailBytes > 0 && head + tailBytes <= BLOCK_BYTES;
  const placement = {
    inode,
    parent,
    blockAddress: 0,
    inline,
    size,
    blocks: fullBlocks + (tailBytes > 0 && !inline ? 1 : 0),
  };
  // An inode with its attributes and inline content stays within one block where it can: inline content must.
  const together = head + (inline ? tailBytes : 0);
  let offset = alignUp(cursor, NID_UNIT_BYTES);
  const room = BLOCK_BYTES - (offset % BLOCK_BYTES);
  if (together <= BLOCK_BYTES ? together > room : INODE_BYTES > room) offset = alignUp(offset, BLOCK_BYTES);
  return { placement, offset, end: chunkTableEnd(inode, offset + together) };
}

function contentOf(inode: Inode, parent: Inode): { size: number; fullBlocks: number; tailBytes: number } {
  const { content } = inode;
  if (content.type === "symlink")
    return { size: content.target.length, fullBlocks: 0, tailBytes: content.target.length };
  if (content.type !== "directory") return { size: 0, fullBlocks: 0, tailBytes: 0 };
  const { ends, lastBytes } = splitBlocks(listing(inode, parent));
  const fullBlocks = ends.length - 1;
  return { size: fullBlocks * BLOCK_BYTES + lastBytes, fullBlocks, tailBytes: lastBytes };
}

function chunkTableEnd(inode: Inode, end: number): number {
  if (inode.content.type !== "file" || inode.content.size === 0) return end;
  return alignUp(end, CHUNK_INDEX_BYTES) + inode.content.chunks.length * CHUNK_INDEX_BYTES;
}
