import type { ByteString } from "#core/tar/entry.ts";
import { readNames } from "./directory.ts";
import type { Ext4Disk } from "./disk.ts";
import type { Inode } from "./inode.ts";

const ROOT = 2;

/** The directory at a path from the root of a file system, of which no part is a link; `undefined`: there is none. */
export async function findDirectory(disk: Ext4Disk, path: readonly ByteString[]): Promise<Inode | undefined> {
  let inode: Inode = await disk.inode(ROOT);
  for (const part of path) {
    const number = await numberOf(disk, inode, part);
    if (number === undefined) return undefined;
    inode = await disk.inode(number);
    if (inode.type !== "directory") return undefined;
  }
  return inode;
}

async function numberOf(disk: Ext4Disk, directory: Inode, wanted: ByteString): Promise<number | undefined> {
  for await (const { name, inode } of readNames(disk, directory)) if (name === wanted) return inode;
  return undefined;
}
