import type { ByteString } from "#core/tar/entry.ts";
import type { Extent } from "#core/tree.ts";

/** What a tar archive can hold. `link` is a hard link to an earlier entry. */
export type TarEntryType = "file" | "link" | "symlink" | "character-device" | "block-device" | "directory" | "fifo";

/** One entry to be written. */
export interface TarEntry {
  readonly type: TarEntryType;
  /** As bytes; directories end with a slash. */
  readonly name: Uint8Array;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes of the file, holes included. */
  readonly size: number;
  /** Of a sparse file: what is no hole. Then only that follows the header. */
  readonly extents?: readonly Extent[] | undefined;
  readonly mtimeNs: bigint;
  /** Where a link points, as bytes. */
  readonly target: Uint8Array | undefined;
  /** `st_rdev` of a device. */
  readonly device: number;
  /** Extended attributes, names as bytes. */
  readonly xattrs?: ReadonlyMap<ByteString, Uint8Array> | undefined;
}

const BLOCK = 512;
const NAME_BYTES = 100;
const LARGEST_OCTAL_SIZE = 0o77777777777;
const LARGEST_OCTAL_ID = 0o7777777;
const TYPE_FLAGS: Readonly<Record<TarEntryType, string>> = {
  file: "0",
  link: "1",
  symlink: "2",
  "character-device": "3",
  "block-device": "4",
  directory: "5",
  fifo: "6",
};

/**
 * The blocks before an entry's content, in ustar form. Names and targets that do not fit go before it as GNU long names,
 * which are plain bytes where pax wants UTF-8. Fractions of a second, large owners, extended attributes and the map of a sparse file (GNU's format
 * 1.0) go into pax records.
 */
export function tarHeader(entry: TarEntry): Uint8Array {
  const parts: Uint8Array[] = [];
  const map = entry.extents === undefined ? undefined : sparseMap(entry.extents);
  const records = paxRecords(entry, map !== undefined);
  if (records.length > 0) parts.push(paxHeader(Buffer.concat(records)));
  if (entry.name.byteLength > NAME_BYTES) parts.push(longName("L", entry.name));
  if (entry.target !== undefined && entry.target.byteLength > NAME_BYTES) parts.push(longName("K", entry.target));
  const size = map === undefined ? entry.size : map.byteLength + contentBytes(entry);
  parts.push(block({ ...entry, size }, TYPE_FLAGS[entry.type]));
  if (map !== undefined) parts.push(map);
  return Buffer.concat(parts);
}

/** Bytes that follow the header of an entry, before they are filled up with `tarPadding`. */
export function contentBytes({ type, size, extents }: TarEntry): number {
  if (type !== "file") return 0;
  return extents === undefined ? size : extents.reduce((sum, extent) => sum + extent.size, 0);
}

function sparseMap(extents: readonly Extent[]): Uint8Array {
  const numbers = [extents.length, ...extents.flatMap(({ offset, size }) => [offset, size])];
  const map = Buffer.from(numbers.map((number) => `${number}\n`).join(""), "latin1");
  return Buffer.concat([map, tarPadding(map.length)]);
}

function paxRecords(entry: TarEntry, sparse: boolean): Uint8Array[] {
  const records: Uint8Array[] = [];
  if (entry.mtimeNs < 0n || entry.mtimeNs % 1_000_000_000n !== 0n)
    records.push(paxRecord("mtime", paxTime(entry.mtimeNs)));
  if (entry.uid > LARGEST_OCTAL_ID) records.push(paxRecord("uid", String(entry.uid)));
  if (entry.gid > LARGEST_OCTAL_ID) records.push(paxRecord("gid", String(entry.gid)));
  for (const [name, value] of entry.xattrs ?? []) records.push(paxRecord(`SCHILY.xattr.${name}`, value));
  if (!sparse) return records;
  records.push(paxRecord("GNU.sparse.major", "1"), paxRecord("GNU.sparse.minor", "0"));
  records.push(paxRecord("GNU.sparse.name", entry.name), paxRecord("GNU.sparse.realsize", String(entry.size)));
  return records;
}

/** The zeros that fill up an entry's last block. */
export function tarPadding(size: number): Uint8Array {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** What closes an archive: without it a reader knows that the archive was cut off. */
export function endOfArchive(): Uint8Array {
  return Buffer.alloc(2 * BLOCK);
}

function block(entry: TarEntry, flag: string): Uint8Array {
  const header = Buffer.alloc(BLOCK);
  header.set(entry.name.subarray(0, NAME_BYTES), 0);
  octal(header, 100, 7, entry.mode);
  octal(header, 108, 7, Math.min(entry.uid, LARGEST_OCTAL_ID));
  octal(header, 116, 7, Math.min(entry.gid, LARGEST_OCTAL_ID));
  writeSize(header, entry.size);
  octal(header, 136, 11, Number(seconds(entry.mtimeNs)));
  header.write(flag, 156, "latin1");
  if (entry.target !== undefined) header.set(entry.target.subarray(0, NAME_BYTES), 157);
  header.write("ustar\u000000", 257, "latin1");
  // glibc's makedev: the minor number has its low byte below the major's twelve bits.
  octal(header, 329, 7, (entry.device >>> 8) & 0xfff);
  octal(header, 337, 7, (entry.device & 0xff) | ((entry.device >>> 12) & 0xfff00));
  header.fill(" ", 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\u0000 `, 148, "latin1");
  return header;
}

/** Ustar holds times from 1970 on; older ones are in the pax record alone. */
function seconds(ns: bigint): bigint {
  return ns < 0n ? 0n : ns / 1_000_000_000n;
}

function octal(header: Buffer, at: number, digits: number, value: number): void {
  header.write(value.toString(8).padStart(digits, "0").slice(-digits), at, "latin1");
}

/** Above 8 GiB the field is binary, as GNU tar has it. */
function writeSize(header: Buffer, size: number): void {
  if (size <= LARGEST_OCTAL_SIZE) {
    octal(header, 124, 11, size);
  } else {
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(size), 128);
  }
}

function longName(flag: string, name: Uint8Array): Uint8Array {
  const size = name.byteLength + 1;
  const head = block({ ...NAMELESS, name: Buffer.from("././@LongLink"), size }, flag);
  return Buffer.concat([head, name, Buffer.alloc(1), tarPadding(size)]);
}

function paxHeader(records: Uint8Array): Uint8Array {
  const head = block({ ...NAMELESS, name: Buffer.from("pax"), size: records.byteLength }, "x");
  return Buffer.concat([head, records, tarPadding(records.byteLength)]);
}

/** `length key=value` and a line feed; the length counts its own digits. */
function paxRecord(key: ByteString, value: string | Uint8Array): Uint8Array {
  const rest = Buffer.concat([Buffer.from(` ${key}=`, "latin1"), Buffer.from(value), Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function paxTime(ns: bigint): string {
  const fraction = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const whole = (ns - fraction) / 1_000_000_000n;
  // A negative time with a fraction counts towards zero in decimal notation.
  return whole < 0n ? decimal(ns) : `${whole}.${fraction.toString().padStart(9, "0")}`;
}

function decimal(ns: bigint): string {
  const digits = (-ns).toString().padStart(10, "0");
  return `-${digits.slice(0, -9)}.${digits.slice(-9)}`;
}

const NAMELESS: Omit<TarEntry, "name" | "size"> = {
  type: "file",
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtimeNs: 0n,
  target: undefined,
  device: 0,
};
