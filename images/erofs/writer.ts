import { setImmediate } from "node:timers/promises";
import { SandboxError } from "#core/errors.ts";
import { sha256, sha256Hex } from "../digest.ts";
import { crc32c } from "./crc32c.ts";
import { listing, offsetOf, splitBlocks, writeDirectoryBlock } from "./directory.ts";
import {
  alignUp,
  BLOCK_BITS,
  BLOCK_BYTES,
  blockOf,
  CHUNK_BITS,
  CHUNK_FORMAT_INDEXES,
  CHUNK_INDEX_BYTES,
  DEVICE_SLOT_BYTES,
  deviceOf,
  FEATURE_COMPAT_CHECKSUM,
  FEATURE_INCOMPAT_CHUNKED_FILE,
  FEATURE_INCOMPAT_DEVICE_TABLE,
  FIRST_INODE_OFFSET,
  HOLE,
  INODE_BYTES,
  LAYOUT_CHUNKED,
  LAYOUT_INLINE,
  LAYOUT_PLAIN,
  MAGIC,
  MAX_DEVICES,
  NID_UNIT_BYTES,
  SUPERBLOCK_BYTES,
  SUPERBLOCK_OFFSET,
  XATTR_HEADER_BYTES,
} from "./format.ts";
import { type Inode, modeBits } from "./inode.ts";
import { INODES_A_TURN, type Placement, plan } from "./plan.ts";
import { writeXattrs, xattrBytes } from "./xattrs.ts";

/** A data device as the metadata names it. */
export interface DataDevice {
  readonly blocks: number;
  /** 64 hex digits: ties the metadata to exactly this data. */
  readonly tag: string;
}

/** More than this is no tree anyone runs, and would have to be held in memory. */
const MAX_METADATA_BYTES = 2 ** 30;

const INODE_IS_EXTENDED = 1;
/** What stands for the digest of a chunk that is all zeros. */
const NO_DIGEST = "-";

/** An image that is whole but for where its data lies. */
class ImageDraft {
  readonly #image: Buffer;
  readonly #placements: readonly Placement[];

  constructor(image: Buffer, placements: readonly Placement[]) {
    this.#image = image;
    this.#placements = placements;
  }

  /** Names the tree and its data, wherever that lies. `digestAt` gives the digest of the chunk at an address. */
  contentDigest(digestAt: (address: number) => string): string {
    const running = sha256();
    running.update(this.#image);
    for (const { inode } of this.#placements) {
      if (inode.content.type !== "file") continue;
      const digests = inode.content.chunks.map((address) => (address === HOLE ? NO_DIGEST : digestAt(address)));
      running.update(Buffer.from(digests.join("\n"), "latin1"));
    }
    return running.hex();
  }

  /**
   * The image, for which the draft gives its memory away: only once. The tree's addresses name devices by other numbers than
   * the image does: `numbers[device]` counts from 1 in the order of `devices`.
   */
  finish(devices: readonly DataDevice[], numbers: readonly number[]): Buffer {
    if (devices.length > MAX_DEVICES) throw new Error("an image names more devices than there is room for");
    for (const { inode } of this.#placements) {
      if (inode.content.type !== "file" || inode.content.size === 0) continue;
      const tail = offsetOf(inode) + INODE_BYTES + xattrBytes(inode.attributes.xattrs);
      writeChunkTable(this.#image, tail, inode.content.chunks, numbers);
    }
    for (const [index, device] of devices.entries()) writeDeviceSlot(this.#image, index, device);
    writeSuperblock(this.#image, this.#placements.length, devices.length);
    return this.#image;
  }
}

/**
 * The metadata image of the tree below `root`, a function of it alone, byte for byte. `TooLarge` above `MAX_METADATA_BYTES`.
 */
export async function draftImage(root: Inode): Promise<ImageDraft> {
  const { placements, blocks } = await plan(root);
  if (blocks * BLOCK_BYTES > MAX_METADATA_BYTES) {
    throw new SandboxError("TooLarge", `the tree needs more than ${MAX_METADATA_BYTES} bytes of metadata`);
  }
  const image = Buffer.alloc(blocks * BLOCK_BYTES);
  for (const [index, placement] of placements.entries()) {
    writeInode(image, placement, index + 1);
    if (index % INODES_A_TURN === 0) await setImmediate();
  }
  return new ImageDraft(image, placements);
}

function writeInode(image: Buffer, placement: Placement, number: number): void {
  const { inode } = placement;
  const { attributes } = inode;
  const offset = offsetOf(inode);
  const xattrs = xattrBytes(attributes.xattrs);
  image.writeUInt16LE(INODE_IS_EXTENDED | (layoutOf(placement) << 1), offset);
  image.writeUInt16LE(xattrs === 0 ? 0 : (xattrs - XATTR_HEADER_BYTES) / 4 + 1, offset + 2);
  image.writeUInt16LE(modeBits(inode), offset + 4);
  const size = inode.content.type === "file" ? inode.content.size : placement.size;
  image.writeBigUInt64LE(BigInt(size), offset + 8);
  image.writeUInt32LE(unionOf(placement), offset + 16);
  image.writeUInt32LE(number, offset + 20);
  image.writeUInt32LE(attributes.uid, offset + 24);
  image.writeUInt32LE(attributes.gid, offset + 28);
  image.writeBigInt64LE(BigInt(attributes.mtimeS), offset + 32);
  image.writeUInt32LE(attributes.mtimeNs, offset + 40);
  image.writeUInt32LE(inode.links, offset + 44);
  writeXattrs(image, offset + INODE_BYTES, attributes.xattrs);
  writeContent(image, placement, offset + INODE_BYTES + xattrs);
}

function layoutOf({ inode, inline }: Placement): number {
  if (inode.content.type === "file" && inode.content.size > 0) return LAYOUT_CHUNKED;
  return inline ? LAYOUT_INLINE : LAYOUT_PLAIN;
}

/** What the inode's union holds: a chunk format, a device number or the address of the whole blocks. */
function unionOf({ inode, blockAddress }: Placement): number {
  const { content } = inode;
  if (content.type === "file") return content.size > 0 ? CHUNK_FORMAT_INDEXES | (CHUNK_BITS - BLOCK_BITS) : 0;
  if (content.type === "character-device" || content.type === "block-device") {
    return ((content.minor & 0xff) | (content.major << 8) | ((content.minor & ~0xff) << 12)) >>> 0;
  }
  return blockAddress;
}

function writeContent(image: Buffer, placement: Placement, tail: number): void {
  const { content } = placement.inode;
  if (content.type === "symlink") {
    image.write(content.target, placement.inline ? tail : placement.blockAddress * BLOCK_BYTES, "latin1");
  }
  if (content.type === "directory") writeDirectory(image, placement, tail);
}

function writeChunkTable(image: Buffer, end: number, chunks: readonly number[], numbers: readonly number[]): void {
  let cursor = alignUp(end, CHUNK_INDEX_BYTES);
  for (const address of chunks) {
    image.writeUInt16LE(address === HOLE ? 0 : (numbers[deviceOf(address)] ?? 0), cursor + 2);
    image.writeUInt32LE(blockOf(address), cursor + 4);
    cursor += CHUNK_INDEX_BYTES;
  }
}

function writeDirectory(image: Buffer, placement: Placement, tail: number): void {
  const entries = listing(placement.inode, placement.parent);
  const { ends } = splitBlocks(entries);
  let start = 0;
  for (const [block, end] of ends.entries()) {
    const isLast = block === ends.length - 1;
    const offset = isLast && placement.inline ? tail : (placement.blockAddress + block) * BLOCK_BYTES;
    writeDirectoryBlock(image, offset, entries.slice(start, end));
    start = end;
  }
}

function writeDeviceSlot(image: Buffer, index: number, { tag, blocks }: DataDevice): void {
  const offset = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES + index * DEVICE_SLOT_BYTES;
  image.write(tag, offset, "latin1");
  image.writeUInt32LE(blocks, offset + 64);
}

function writeSuperblock(image: Buffer, inodes: number, devices: number): void {
  const at = SUPERBLOCK_OFFSET;
  const deviceTable = devices === 0 ? 0 : FEATURE_INCOMPAT_DEVICE_TABLE;
  image.writeUInt32LE(MAGIC, at);
  image.writeUInt32LE(FEATURE_COMPAT_CHECKSUM, at + 8);
  image.writeUInt8(BLOCK_BITS, at + 12);
  image.writeUInt16LE(FIRST_INODE_OFFSET / NID_UNIT_BYTES, at + 14);
  image.writeBigUInt64LE(BigInt(inodes), at + 16);
  image.writeUInt32LE(image.length / BLOCK_BYTES, at + 36);
  image.writeUInt32LE(FEATURE_INCOMPAT_CHUNKED_FILE | deviceTable, at + 80);
  image.writeUInt16LE(devices, at + 86);
  image.writeUInt16LE((SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES) / DEVICE_SLOT_BYTES, at + 88);
  // Overlayfs tells lower file systems apart by their UUID: derived from everything else, it differs exactly when they do.
  image.write(sha256Hex(image).slice(0, 32), at + 48, "hex");
  image.writeUInt32LE(crc32c(image.subarray(at, BLOCK_BYTES)), at + 4);
}
