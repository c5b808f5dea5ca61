/**
 * The part of the EROFS on-disk format that the writer uses, as plain numbers. Uncompressed, 4 KiB blocks, extended
 * inodes, extra devices that hold the file data.
 */
export const BLOCK_BYTES = 4096;
export const SUPERBLOCK_OFFSET = 1024;
export const SUPERBLOCK_BYTES = 128;
export const DEVICE_SLOT_BYTES = 128;
export const MAGIC = 0xe0f5e1e2;
/** Inode numbers count units of 32 bytes from the start of the metadata. */
export const NID_UNIT_BYTES = 32;
export const INODE_BYTES = 64;
export const DIRENT_BYTES = 12;
export const CHUNK_INDEX_BYTES = 8;
/** The block of a chunk that is zeros. */
const HOLE_BLOCK = 0xffff_ffff;
/** A chunk address that stands for zeros: of no device. */
export const HOLE = HOLE_BLOCK;

/**
 * Devices that an image can name. Room for all of them is kept before the first inode, so that nothing moves when data lies in
 * other blobs; and their paths must fit into the one page of options that mount(2) takes.
 */
export const MAX_DEVICES = 119;
export const FIRST_INODE_OFFSET = 16_384;

/** Where a chunk lies, as one number: a device, counted from 1, and a block on it. */
export function chunkAddress(device: number, block: number): number {
  return device * 2 ** 32 + block;
}

/** The device of an address; 0 of a hole. */
export function deviceOf(address: number): number {
  return Math.floor(address / 2 ** 32);
}

/** The block of an address on its device. */
export function blockOf(address: number): number {
  return address >>> 0;
}

/** The superblock carries a CRC-32C of its block. */
export const FEATURE_COMPAT_CHECKSUM = 0x1;
/** Files may be tables of chunks. */
export const FEATURE_INCOMPAT_CHUNKED_FILE = 0x4;
/** There are devices beside the first. */
export const FEATURE_INCOMPAT_DEVICE_TABLE = 0x8;

/** Content lies in whole blocks. */
export const LAYOUT_PLAIN = 0;
/** The end of the content follows the inode. */
export const LAYOUT_INLINE = 2;
/** A table of chunk addresses follows the inode. */
export const LAYOUT_CHUNKED = 4;
/** Each chunk address names its device. */
export const CHUNK_FORMAT_INDEXES = 0x20;

/** File data is addressed in chunks of this size; equal chunks of a layer are stored once. */
export const CHUNK_BITS = 20;
export const CHUNK_BYTES = 1 << CHUNK_BITS;
export const BLOCK_BITS = 12;

/** What precedes the attributes of an inode. */
export const XATTR_HEADER_BYTES = 12;
/** An attribute's name is stored as one of these prefixes and the rest. */
export const XATTR_PREFIXES: readonly { readonly prefix: string; readonly index: number }[] = [
  { prefix: "user.", index: 1 },
  { prefix: "system.posix_acl_access", index: 2 },
  { prefix: "system.posix_acl_default", index: 3 },
  { prefix: "trusted.", index: 4 },
  { prefix: "security.", index: 6 },
];

/** The smallest multiple of `unit` that is not less than `value`. */
export function alignUp(value: number, unit: number): number {
  return Math.ceil(value / unit) * unit;
}
