import type { ByteString } from "#core/tar/entry.ts";
import { BLOCK_BYTES, DIRENT_BYTES, NID_UNIT_BYTES } from "./format.ts";
import { direntType, type Inode } from "./inode.ts";

/** One name in a directory. */
export interface DirectoryEntry {
  readonly name: ByteString;
  readonly inode: Inode;
}

/** All names of a directory, `.` and `..` among them, in the byte order that lookups search by. */
export function listing(directory: Inode, parent: Inode): DirectoryEntry[] {
  const entries: DirectoryEntry[] = [
    { name: ".", inode: directory },
    { name: "..", inode: parent },
  ];
  if (directory.content.type === "directory") {
    for (const [name, inode] of directory.content.children) entries.push({ name, inode });
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** How the entries fill blocks: index behind the last entry of each block, and the bytes used in the last one. */
export function splitBlocks(entries: readonly DirectoryEntry[]): { ends: number[]; lastBytes: number } {
  const ends: number[] = [];
  let used = 0;
  for (const [index, { name }] of entries.entries()) {
    const bytes = DIRENT_BYTES + name.length;
    if (used + bytes > BLOCK_BYTES) {
      ends.push(index);
      used = 0;
    }
    used += bytes;
  }
  ends.push(entries.length);
  return { ends, lastBytes: used };
}

/** Writes one block of entries at `offset`; every inode has its `nid` by now. */
export function writeDirectoryBlock(image: Buffer, offset: number, entries: readonly DirectoryEntry[]): void {
  let dirent = offset;
  let name = offset + entries.length * DIRENT_BYTES;
  for (const entry of entries) {
    image.writeUInt32LE(entry.inode.nid >>> 0, dirent);
    image.writeUInt32LE(Math.floor(entry.inode.nid / 2 ** 32), dirent + 4);
    image.writeUInt16LE(name - offset, dirent + 8);
    image.writeUInt8(direntType(entry.inode), dirent + 10);
    image.write(entry.name, name, "latin1");
    dirent += DIRENT_BYTES;
    name += entry.name.length;
  }
}

/** Byte offset of an inode in the image. */
export function offsetOf(inode: Inode): number {
  return inode.nid * NID_UNIT_BYTES;
}
