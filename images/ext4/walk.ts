import type { ByteString, TreeEntry } from "#core/tar/entry.ts";
import type { Extent } from "#core/tree.ts";
import type { Names } from "../pack/patterns.ts";
import { type FileBytes, type FileStats, type Found, shownPath, type Visitor } from "../pack/visit.ts";
import { readNames } from "./directory.ts";
import type { Ext4Disk } from "./disk.ts";
import { findDirectory } from "./find.ts";
import { damaged } from "./format.ts";
import { type Inode, readExtents, readTarget } from "./inode.ts";
import { readXattrs } from "./xattrs.ts";

/** A directory on the way, with those of its directories that were not walked yet. */
interface Level<T> {
  readonly directories: { readonly name: ByteString; readonly inode: Inode; readonly made: T }[];
}

/**
 * Visits a directory of the root of a file system and everything below it, each directory before what is in it. A directory that is in two places is damage: so
 * a walk ends. Memory: the names of the directories on the way, and a number for each directory. Where there is no such directory, there is nothing to visit: its system has not
 * written anything yet.
 */
export async function walkExt4<T>(disk: Ext4Disk, root: ByteString, visitor: Visitor<T>): Promise<void> {
  const top = await findDirectory(disk, [root]);
  if (top === undefined) return;
  const walk = new Ext4Walk(disk, visitor);
  const way: Level<T>[] = [await walk.level(top, [], await walk.visit(top, [], undefined))];
  const names: ByteString[] = [];
  for (let level = way.at(-1); level !== undefined; level = way.at(-1)) {
    const next = level.directories.pop();
    if (next === undefined) {
      way.pop();
      names.pop();
      continue;
    }
    names.push(next.name);
    way.push(await walk.level(next.inode, names, next.made));
  }
}

class Ext4Walk<T> {
  readonly #disk: Ext4Disk;
  readonly #visitor: Visitor<T>;
  readonly #seen = new Set<number>();

  constructor(disk: Ext4Disk, visitor: Visitor<T>) {
    this.#disk = disk;
    this.#visitor = visitor;
  }

  /** Visits what is in a directory. */
  async level(directory: Inode, above: Names, made: T): Promise<Level<T>> {
    if (this.#seen.has(directory.number)) throw damaged(`directory ${directory.number} is in two places`);
    this.#seen.add(directory.number);
    const directories: Level<T>["directories"] = [];
    for await (const { name, inode: number } of readNames(this.#disk, directory)) {
      const inode = await this.#disk.inode(number);
      const names = [...above, name];
      if (!this.#visitor.takes({ names, stats: new InodeStats(inode) })) continue;
      const visited = await this.visit(inode, names, made);
      if (inode.type === "directory") directories.push({ name, inode, made: visited });
    }
    return { directories };
  }

  async visit(inode: Inode, names: Names, above: T | undefined): Promise<T> {
    const found: Found = { names, stats: new InodeStats(inode) };
    if (names.length === 0) this.#visitor.takes(found);
    const file = inode.type === "file" ? new InodeBytes(this.#disk, inode) : undefined;
    const entry = await describe(this.#disk, inode, names);
    return await this.#visitor.visit({ ...found, entry, file, data: undefined, above });
  }
}

async function describe(disk: Ext4Disk, inode: Inode, names: Names): Promise<TreeEntry> {
  const { type, mode, uid, gid, mtimeS, mtimeNs, size, major, minor } = inode;
  const target = type === "symlink" ? (await readTarget(disk, inode)).toString("latin1") : "";
  const xattrs = await readXattrs(disk, inode);
  return {
    ...{ type, mode, uid, gid, mtimeS, mtimeNs, xattrs, target, major, minor },
    path: shownPath(names),
    size: type === "file" ? size : 0,
  };
}

class InodeStats implements FileStats {
  readonly #inode: Inode;

  constructor(inode: Inode) {
    this.#inode = inode;
  }

  get ino(): bigint {
    return BigInt(this.#inode.number);
  }

  get nlink(): bigint {
    return BigInt(this.#inode.links);
  }

  get size(): bigint {
    return BigInt(this.#inode.size);
  }

  /** 0 is an overlay's mark; others are told by what they are alone. */
  get rdev(): bigint {
    return BigInt(this.#inode.major * 2 ** 20 + this.#inode.minor);
  }

  isFile(): boolean {
    return this.#inode.type === "file";
  }

  isDirectory(): boolean {
    return this.#inode.type === "directory";
  }

  isSocket(): boolean {
    return this.#inode.type === "socket";
  }

  isCharacterDevice(): boolean {
    return this.#inode.type === "character-device";
  }

  isBlockDevice(): boolean {
    return this.#inode.type === "block-device";
  }
}

/** The data of a file; it is read in the order of its extents. */
class InodeBytes implements FileBytes {
  readonly #disk: Ext4Disk;
  readonly #inode: Inode;
  /** The extent that is read from: where it begins in the file and on the disk. */
  #at = { offset: 0, place: 0 };

  constructor(disk: Ext4Disk, inode: Inode) {
    this.#disk = disk;
    this.#inode = inode;
  }

  async *extents(): AsyncGenerator<Extent, void, undefined> {
    const { blockBytes } = this.#disk.superblock;
    for await (const { first, count, start } of readExtents(this.#disk, this.#inode)) {
      const offset = first * blockBytes;
      const size = Math.min(count * blockBytes, this.#inode.size - offset);
      if (size <= 0) return;
      this.#disk.count(Math.ceil(size / blockBytes));
      this.#at = { offset, place: start * blockBytes };
      yield { offset, size };
    }
  }

  async read(into: Uint8Array, offset: number): Promise<number> {
    const { offset: begin, place } = this.#at;
    await this.#disk.read(into, place + offset - begin);
    return into.length;
  }
}
