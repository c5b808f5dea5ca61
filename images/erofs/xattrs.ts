import type { ByteString } from "#core/tar/entry.ts";
import { alignUp, XATTR_HEADER_BYTES, XATTR_PREFIXES } from "./format.ts";

type Xattrs = ReadonlyMap<ByteString, Uint8Array> | undefined;

/** Bytes of the attributes behind an inode; 0 when it has none. */
export function xattrBytes(xattrs: Xattrs): number {
  if (xattrs === undefined || xattrs.size === 0) return 0;
  let bytes = XATTR_HEADER_BYTES;
  for (const [name, value] of xattrs) bytes += entryBytes(name, value);
  return bytes;
}

/** True when EROFS has a prefix for the name. */
export function canStoreXattr(name: ByteString): boolean {
  return XATTR_PREFIXES.some(({ prefix }) => name.startsWith(prefix));
}

/** Writes what `xattrBytes` measured at `offset`, sorted by name. The caller's names have passed `canStoreXattr`. */
export function writeXattrs(image: Buffer, offset: number, xattrs: Xattrs): void {
  if (xattrs === undefined || xattrs.size === 0) return;
  let cursor = offset + XATTR_HEADER_BYTES;
  for (const [name, value] of [...xattrs].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const { index, rest } = split(name);
    image.writeUInt8(rest.length, cursor);
    image.writeUInt8(index, cursor + 1);
    image.writeUInt16LE(value.length, cursor + 2);
    image.write(rest, cursor + 4, "latin1");
    image.set(value, cursor + 4 + rest.length);
    cursor += entryBytes(name, value);
  }
}

/** What `writeXattrs` wrote in `bytes` bytes at `offset`. Throws a `RangeError` when it runs out of the image. */
export function readXattrs(image: Buffer, offset: number, bytes: number): Xattrs {
  if (bytes === 0) return undefined;
  const found = new Map<ByteString, Uint8Array>();
  const end = offset + bytes;
  for (let cursor = offset + XATTR_HEADER_BYTES; cursor + 4 <= end; ) {
    const [nameBytes, index, valueBytes] = [
      image.readUInt8(cursor),
      image.readUInt8(cursor + 1),
      image.readUInt16LE(cursor + 2),
    ];
    const known = XATTR_PREFIXES.find((prefix) => prefix.index === index);
    const value = cursor + 4 + nameBytes;
    if (known === undefined || value + valueBytes > end) throw new RangeError("attributes are damaged");
    const name = known.prefix + image.toString("latin1", cursor + 4, value);
    found.set(name, Uint8Array.from(image.subarray(value, value + valueBytes)));
    cursor += entryBytes(name, image.subarray(value, value + valueBytes));
  }
  return found;
}

function entryBytes(name: ByteString, value: Uint8Array): number {
  return alignUp(4 + split(name).rest.length + value.length, 4);
}

function split(name: ByteString): { index: number; rest: ByteString } {
  const found = XATTR_PREFIXES.find(({ prefix }) => name.startsWith(prefix));
  if (found === undefined) throw new Error(`no EROFS prefix for the attribute ${name}`);
  return { index: found.index, rest: name.slice(found.prefix.length) };
}
