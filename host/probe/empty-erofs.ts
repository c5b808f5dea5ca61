const BLOCK_BYTES = 4096;
const SUPERBLOCK_AT = 1024;
const INODE_AT = 2048;
const MAGIC = 0xe0f5e1e2;

/** The least EROFS image: one empty root directory. Enough to see whether, and how, the kernel mounts one. */
export function emptyErofs(): Uint8Array {
  const image = Buffer.alloc(2 * BLOCK_BYTES);
  image.writeUInt32LE(MAGIC, SUPERBLOCK_AT);
  image.writeUInt8(12, SUPERBLOCK_AT + 12); // block size as a power of two
  image.writeUInt16LE(INODE_AT / 32, SUPERBLOCK_AT + 14); // inodes are numbered by 32-byte slots
  image.writeBigUInt64LE(1n, SUPERBLOCK_AT + 16); // inodes
  image.writeUInt32LE(2, SUPERBLOCK_AT + 36); // blocks
  writeRootInode(image);
  writeEntries(image.subarray(BLOCK_BYTES));
  return image;
}

/** A compact inode with its data in whole blocks, from block 1 on. */
function writeRootInode(image: Buffer): void {
  image.writeUInt16LE(0o40755, INODE_AT + 4);
  image.writeUInt16LE(2, INODE_AT + 6); // links
  image.writeUInt32LE(BLOCK_BYTES, INODE_AT + 8);
  image.writeUInt32LE(1, INODE_AT + 16); // first block
  image.writeUInt32LE(1, INODE_AT + 20); // inode number for 32-bit callers
}

/** `.` and `..`: inode, offset of the name, type; the names follow the entries. */
function writeEntries(block: Buffer): void {
  const names = [".", ".."];
  let nameAt = names.length * 12;
  for (const [index, name] of names.entries()) {
    block.writeBigUInt64LE(BigInt(INODE_AT / 32), index * 12);
    block.writeUInt16LE(nameAt, index * 12 + 8);
    block.writeUInt8(2, index * 12 + 10);
    nameAt += block.write(name, nameAt);
  }
}
