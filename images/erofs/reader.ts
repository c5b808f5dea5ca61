import type { Attributes, ByteString } from "#core/tar/entry.ts";
import {
  alignUp,
  BLOCK_BITS,
  BLOCK_BYTES,
  CHUNK_BITS,
  CHUNK_BYTES,
  CHUNK_FORMAT_INDEXES,
  CHUNK_INDEX_BYTES,
  chunkAddress,
  DEVICE_SLOT_BYTES,
  DIRENT_BYTES,
  HOLE,
  INODE_BYTES,
  LAYOUT_CHUNKED,
  LAYOUT_INLINE,
  LAYOUT_PLAIN,
  MAGIC,
  NID_UNIT_BYTES,
  SUPERBLOCK_BYTES,
  SUPERBLOCK_OFFSET,
} from "./format.ts";
import { type Content, Inode, typeOfMode } from "./inode.ts";
import { readXattrs } from "./xattrs.ts";

const MAX_NAME_BYTES = 255;
const MAX_TARGET_BYTES = 4095;
const PERMISSIONS = 0o7777;

/** Why an image is no image of this writer. */
export class NotOurImage extends Error {}

/**
 * The tree of a metadata image as the writer makes it, with addresses of chunks that name devices by `numberOf(tag)`. The image may
 * have been made by an enemy: whatever it holds, memory is bounded by its size, every directory has one parent, and names are
 * names. Throws `NotOurImage`.
 */
export function readImage(image: Buffer, numberOf: (tag: string) => number): Inode {
  try {
    return new Reader(image, devicesOf(image).map(numberOf)).tree();
  } catch (error) {
    // A place that lies outside of the image.
    if (error instanceof RangeError) throw new NotOurImage("it points outside of itself", { cause: error });
    throw error;
  }
}

/** The tags of the devices that an image names, in their order. */
function devicesOf(image: Buffer): string[] {
  const at = SUPERBLOCK_OFFSET;
  if (image.length < BLOCK_BYTES || image.readUInt32LE(at) !== MAGIC || image.readUInt8(at + 12) !== BLOCK_BITS) {
    throw new NotOurImage("it has no superblock of this format");
  }
  const count = image.readUInt16LE(at + 86);
  return Array.from({ length: count }, (_, index) => {
    const slot = at + SUPERBLOCK_BYTES + index * DEVICE_SLOT_BYTES;
    return image.toString("latin1", slot, slot + 64);
  });
}

class Reader {
  readonly #image: Buffer;
  readonly #devices: readonly number[];
  readonly #inodes = new Map<number, Inode>();
  #unread: number;

  constructor(image: Buffer, devices: readonly number[]) {
    this.#image = image;
    this.#devices = devices;
    this.#unread = image.length;
  }

  tree(): Inode {
    const rootNid = this.#image.readUInt16LE(SUPERBLOCK_OFFSET + 14);
    const root = this.#inode(rootNid);
    const waiting = [{ inode: root, nid: rootNid }];
    if (root.content.type !== "directory") throw new NotOurImage("its root is no directory");
    for (const { inode, nid } of waiting) {
      if (inode.content.type !== "directory") continue;
      for (const [name, childNid] of this.#names(nid)) {
        const known = this.#inodes.get(childNid);
        // A directory with two names could be its own ancestor.
        if (known?.content.type === "directory") throw new NotOurImage("a directory has two names");
        const child = known ?? this.#inode(childNid);
        if (inode.content.children.has(name)) throw new NotOurImage("a name appears twice");
        inode.content.children.set(name, child);
        if (known === undefined) waiting.push({ inode: child, nid: childNid });
      }
    }
    return root;
  }

  #inode(nid: number): Inode {
    const [image, at] = [this.#image, nid * NID_UNIT_BYTES];
    this.#spend(INODE_BYTES + xattrBytesAt(image, at));
    if ((image.readUInt16LE(at) & 1) === 0) throw new NotOurImage("it has an inode of another format");
    const attributes: Attributes = {
      mode: image.readUInt16LE(at + 4) & PERMISSIONS,
      uid: image.readUInt32LE(at + 24),
      gid: image.readUInt32LE(at + 28),
      mtimeS: Number(image.readBigInt64LE(at + 32)),
      mtimeNs: image.readUInt32LE(at + 40),
      xattrs: readXattrs(image, at + INODE_BYTES, xattrBytesAt(image, at)),
    };
    const inode = new Inode(attributes, this.#content(at));
    this.#inodes.set(nid, inode);
    return inode;
  }

  #content(at: number): Content {
    const type = typeOfMode(this.#image.readUInt16LE(at + 4));
    switch (type) {
      case undefined:
        throw new NotOurImage("it has an inode of no known type");
      case "directory":
        return { type, children: new Map() };
      case "file":
        return { type, ...this.#file(at) };
      case "symlink":
        return { type, target: this.#target(at) };
      case "character-device":
      case "block-device": {
        const device = this.#image.readUInt32LE(at + 16);
        return { type, major: (device >> 8) & 0xfff, minor: (device & 0xff) | ((device >>> 12) & 0xfff00) };
      }
      default:
        return { type };
    }
  }

  #file(at: number): { readonly size: number; readonly chunks: number[] } {
    const size = this.#size(at);
    if (size === 0) return { size, chunks: [] };
    const format = CHUNK_FORMAT_INDEXES | (CHUNK_BITS - BLOCK_BITS);
    if (layoutAt(this.#image, at) !== LAYOUT_CHUNKED || this.#image.readUInt32LE(at + 16) !== format) {
      throw new NotOurImage("it has a file that is not made of chunks");
    }
    const table = alignUp(at + INODE_BYTES + xattrBytesAt(this.#image, at), CHUNK_INDEX_BYTES);
    const count = Math.ceil(size / CHUNK_BYTES);
    this.#spend(count * CHUNK_INDEX_BYTES);
    if (table + count * CHUNK_INDEX_BYTES > this.#image.length) throw new NotOurImage("a table of chunks is cut off");
    const chunks = Array.from({ length: count }, (_, index) => this.#address(table + index * CHUNK_INDEX_BYTES));
    return { size, chunks };
  }

  #address(at: number): number {
    const [number, block] = [this.#image.readUInt16LE(at + 2), this.#image.readUInt32LE(at + 4)];
    if (block === HOLE) return HOLE;
    const device = this.#devices[number - 1];
    if (device === undefined) throw new NotOurImage("a chunk lies on a device that it does not name");
    return chunkAddress(device, block);
  }

  #target(at: number): ByteString {
    const size = this.#size(at);
    if (size === 0 || size > MAX_TARGET_BYTES) throw new NotOurImage("a link has an impossible target");
    const [start] = this.#blocks(at, size);
    return this.#image.toString("latin1", start, Number(start) + size);
  }

  /** Where the content of an inode lies, a start for each block. */
  #blocks(at: number, size: number): number[] {
    this.#spend(size);
    const layout = layoutAt(this.#image, at);
    if (layout !== LAYOUT_PLAIN && layout !== LAYOUT_INLINE) throw new NotOurImage("it has content of another layout");
    const first = this.#image.readUInt32LE(at + 16);
    const count = Math.ceil(size / BLOCK_BYTES);
    const starts = Array.from({ length: count }, (_, index) => (first + index) * BLOCK_BYTES);
    if (layout === LAYOUT_INLINE) starts[count - 1] = at + INODE_BYTES + xattrBytesAt(this.#image, at);
    for (const [index, start] of starts.entries()) {
      const bytes = Math.min(BLOCK_BYTES, size - index * BLOCK_BYTES);
      if (start + bytes > this.#image.length) throw new NotOurImage("content is cut off");
    }
    return starts;
  }

  /** Parts of an image may overlap, and a small image be a huge tree: not more is read than there is. */
  #spend(bytes: number): void {
    this.#unread -= bytes;
    if (this.#unread < 0) throw new NotOurImage("parts of it overlap");
  }

  *#names(nid: number): Iterable<[ByteString, number]> {
    const at = nid * NID_UNIT_BYTES;
    const size = this.#size(at);
    for (const [index, start] of this.#blocks(at, size).entries()) {
      const bytes = Math.min(BLOCK_BYTES, size - index * BLOCK_BYTES);
      for (const [name, child] of namesOfBlock(this.#image.subarray(start, start + bytes))) {
        if (name !== "." && name !== "..") yield [name, child];
      }
    }
  }

  #size(at: number): number {
    const size = Number(this.#image.readBigUInt64LE(at + 8));
    if (!Number.isSafeInteger(size)) throw new NotOurImage("a size is impossible");
    return size;
  }
}

function* namesOfBlock(block: Buffer): Iterable<[ByteString, number]> {
  const count = block.readUInt16LE(8) / DIRENT_BYTES;
  if (!Number.isInteger(count) || count === 0) throw new NotOurImage("a listing is damaged");
  for (let index = 0; index < count; index++) {
    const at = index * DIRENT_BYTES;
    const start = block.readUInt16LE(at + 8);
    const end = index + 1 < count ? block.readUInt16LE(at + DIRENT_BYTES + 8) : block.length;
    // The last name of a block ends at a zero or with the block.
    const name = block.toString("latin1", start, end).replace(/\0.*$/s, "");
    if (name === "" || name.length > MAX_NAME_BYTES || name.includes("/") || end > block.length) {
      throw new NotOurImage("a listing has an impossible name");
    }
    yield [name, block.readUInt32LE(at) + block.readUInt32LE(at + 4) * 2 ** 32];
  }
}

function layoutAt(image: Buffer, at: number): number {
  return (image.readUInt16LE(at) >> 1) & 7;
}

function xattrBytesAt(image: Buffer, at: number): number {
  const count = image.readUInt16LE(at + 2);
  return count === 0 ? 0 : 12 + (count - 1) * 4;
}
