import type { ByteString } from "#core/tar/entry.ts";
import type { Ext4Disk } from "./disk.ts";
import { damaged } from "./format.ts";
import type { Inode } from "./inode.ts";

const MAGIC = 0xea020000;
const [ENTRY_BYTES, BLOCK_HEADER_BYTES, MAGIC_BYTES] = [16, 32, 4];
const PREFIXES: Readonly<Record<number, string>> = {
  1: "user.",
  2: "system.posix_acl_access",
  3: "system.posix_acl_default",
  4: "trusted.",
  6: "security.",
  7: "system.",
};
const ACL_INDEXES = [2, 3];
/** Of the disk's form of an ACL, and of that which callers of the kernel see. */
const [DISK_ACL, SHOWN_ACL] = [1, 2];
/** Entries of an ACL that are about somebody by number. */
const NUMBERED = [0x02, 0x08];
const NOBODY = 0xffff_ffff;

/** All attributes of a file, as a caller of the kernel sees them; `undefined`: none. */
export async function readXattrs(
  disk: Ext4Disk,
  inode: Inode,
): Promise<ReadonlyMap<ByteString, Uint8Array> | undefined> {
  const found = new Map<ByteString, Uint8Array>();
  const { rest, attributes } = inode;
  if (rest.length > MAGIC_BYTES && rest.readUInt32LE(0) === MAGIC) {
    const list = rest.subarray(MAGIC_BYTES);
    readList(list, { at: 0, values: list, found });
  }
  if (attributes !== 0) {
    const block = await disk.block(attributes);
    if (block.readUInt32LE(0) !== MAGIC) throw damaged(`the attributes of inode ${inode.number}`);
    readList(block, { at: BLOCK_HEADER_BYTES, values: block, found });
  }
  return found.size === 0 ? undefined : found;
}

interface Into {
  readonly at: number;
  /** What offsets of values count from. */
  readonly values: Buffer;
  readonly found: Map<ByteString, Uint8Array>;
}

function readList(list: Buffer, { at: begin, values, found }: Into): void {
  for (let at = begin; at + 4 <= list.length && list.readUInt32LE(at) !== 0; ) {
    if (at + ENTRY_BYTES > list.length) throw damaged("a list of attributes");
    const [nameLength, index, offset] = [list.readUInt8(at), list.readUInt8(at + 1), list.readUInt16LE(at + 2)];
    const [elsewhere, size] = [list.readUInt32LE(at + 4), list.readUInt32LE(at + 8)];
    const prefix = PREFIXES[index];
    const end = at + ENTRY_BYTES + nameLength;
    if (prefix === undefined || elsewhere !== 0 || end > list.length || offset + size > values.length)
      throw damaged("an attribute");
    const value = values.subarray(offset, offset + size);
    const name = prefix + list.toString("latin1", at + ENTRY_BYTES, end);
    // The kernel gives each of these a name, and lists of rights none of their own.
    if ((nameLength === 0) !== ACL_INDEXES.includes(index) || name.includes("\0"))
      throw damaged("the name of an attribute");
    found.set(name, ACL_INDEXES.includes(index) ? shownAcl(value) : Uint8Array.from(value));
    at = Math.ceil(end / 4) * 4;
  }
}

function shownAcl(bytes: Buffer): Uint8Array {
  if (bytes.length < 4 || bytes.readUInt32LE(0) !== DISK_ACL) throw damaged("a list of rights");
  const entries: Buffer[] = [];
  for (let at = 4; at < bytes.length; ) {
    const isNumbered = at + 4 <= bytes.length && NUMBERED.includes(bytes.readUInt16LE(at));
    const length = isNumbered ? 8 : 4;
    if (at + length > bytes.length) throw damaged("a list of rights");
    const entry = Buffer.alloc(8);
    bytes.copy(entry, 0, at, at + 4);
    entry.writeUInt32LE(isNumbered ? bytes.readUInt32LE(at + 4) : NOBODY, 4);
    entries.push(entry);
    at += length;
  }
  const head = Buffer.alloc(4);
  head.writeUInt32LE(SHOWN_ACL, 0);
  return Buffer.concat([head, ...entries]);
}
