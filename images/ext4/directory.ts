import { type ByteString, byteString } from "#core/tar/entry.ts";
import type { Ext4Disk } from "./disk.ts";
import { damaged } from "./format.ts";
import { type Inode, readExtents } from "./inode.ts";

const HEAD_BYTES = 8;

/** A name in a directory. */
export interface Name {
  readonly name: ByteString;
  readonly inode: number;
}

/** The names in a directory, without `.` and `..`. Its index is not used: every block of it can be read as a list. */
export async function* readNames(disk: Ext4Disk, inode: Inode): AsyncGenerator<Name, void, undefined> {
  const { blockBytes } = disk.superblock;
  const blocks = Math.ceil(inode.size / blockBytes);
  for await (const { first, count, start } of readExtents(disk, inode)) {
    for (let n = 0; n < Math.min(count, blocks - first); n += 1) yield* namesIn(await disk.ownBlock(start + n), inode);
  }
}

function* namesIn(block: Buffer, { number }: Inode): Generator<Name, void, undefined> {
  for (let at = 0; at < block.length; ) {
    if (at + HEAD_BYTES > block.length) throw damaged(`directory ${number}`);
    const [inode, length, nameLength] = [block.readUInt32LE(at), block.readUInt16LE(at + 4), block.readUInt8(at + 6)];
    if (length < HEAD_BYTES + nameLength || at + length > block.length) throw damaged(`directory ${number}`);
    const name = byteString(block.subarray(at + HEAD_BYTES, at + HEAD_BYTES + nameLength));
    at += length;
    if (inode === 0 || name === "." || name === "..") continue;
    if (name === "" || name.includes("/") || name.includes("\0")) throw damaged(`a name in directory ${number}`);
    yield { name, inode };
  }
}
