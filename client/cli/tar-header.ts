/** What a tar archive can hold. `link` is a hard link to an earlier entry. */
export type TarEntryType = "file" | "link" | "symlink" | "character-device" | "block-device" | "directory" | "fifo";

/** One entry; owners are always 0. */
export interface TarEntry {
  readonly type: TarEntryType;
  /** As bytes; directories end with a slash. */
  readonly name: Uint8Array;
  readonly mode: number;
  readonly size: number;
  readonly mtimeNs: bigint;
  /** Where a link points, as bytes. */
  readonly target: Uint8Array | undefined;
  /** `st_rdev` of a device. */
  readonly device: number;
}

const BLOCK = 512;
const NAME_BYTES = 100;
const LARGEST_OCTAL_SIZE = 0o77777777777;
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
 * which are plain bytes where pax wants UTF-8; fractions of a second go into a pax record.
 */
export function tarHeader(entry: TarEntry): Uint8Array {
  const parts: Uint8Array[] = [];
  if (entry.mtimeNs % 1_000_000_000n !== 0n) parts.push(paxTime(entry.mtimeNs));
  if (entry.name.byteLength > NAME_BYTES) parts.push(longName("L", entry.name));
  if (entry.target !== undefined && entry.target.byteLength > NAME_BYTES) parts.push(longName("K", entry.target));
  parts.push(block(entry, TYPE_FLAGS[entry.type]));
  return Buffer.concat(parts);
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
  octal(header, 108, 7, 0);
  octal(header, 116, 7, 0);
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

function paxTime(ns: bigint): Uint8Array {
  const fraction = ((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const whole = (ns - fraction) / 1_000_000_000n;
  // A negative time with a fraction counts towards zero in decimal notation.
  const text = whole < 0n ? decimal(ns) : `${whole}.${fraction.toString().padStart(9, "0")}`;
  const rest = ` mtime=${text}\n`;
  const length = rest.length + (rest.length + 2 > 99 ? 3 : 2);
  const body = Buffer.from(`${length}${rest}`, "latin1");
  const head = block({ ...NAMELESS, name: Buffer.from("pax"), size: body.length }, "x");
  return Buffer.concat([head, body, tarPadding(body.length)]);
}

function decimal(ns: bigint): string {
  const digits = (-ns).toString().padStart(10, "0");
  return `-${digits.slice(0, -9)}.${digits.slice(-9)}`;
}

const NAMELESS: Omit<TarEntry, "name" | "size"> = {
  type: "file",
  mode: 0o644,
  mtimeNs: 0n,
  target: undefined,
  device: 0,
};
