import { type ByteString, badInput, byteString } from "#core/tar/entry.ts";

/** Headers and data of an archive come in blocks of this size. */
export const TAR_BLOCK_BYTES = 512;

/** One 512-byte header as it stands, before pax and GNU records amend it. */
export interface TarHeader {
  readonly path: ByteString;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly mtimeS: number;
  readonly flag: string;
  readonly target: ByteString;
  readonly major: number;
  readonly minor: number;
}

/** Reads one header block; `undefined` for a block of zeros. `after` names the entry before it, for messages. */
export function readHeader(block: Buffer, after: string): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  checkSum(block, after);
  const field = (start: number, length: number): number => number(block.subarray(start, start + length), after);
  // Only POSIX archives use the prefix; GNU ones keep times there.
  const isPosix = block.toString("latin1", 257, 263) === "ustar\0";
  const prefix = isPosix ? text(block, 345, 155) : "";
  const name = text(block, 0, 100);
  return {
    path: prefix === "" ? name : `${prefix}/${name}`,
    mode: field(100, 8),
    uid: field(108, 8),
    gid: field(116, 8),
    size: field(124, 12),
    mtimeS: field(136, 12),
    flag: String.fromCharCode(block[156] ?? 0),
    target: text(block, 157, 100),
    major: field(329, 8),
    minor: field(337, 8),
  };
}

function checkSum(block: Buffer, after: string): void {
  let unsigned = 8 * 0x20;
  let signed = unsigned;
  // Not by iterator: this is done for every member, and would be a tenth of an import of small files.
  for (let index = 0; index < TAR_BLOCK_BYTES; index++) {
    if (index >= 148 && index < 156) continue;
    const byte = block[index] ?? 0;
    unsigned += byte;
    signed += byte < 128 ? byte : byte - 256;
  }
  const stored = number(block.subarray(148, 156), after);
  // Some old archivers summed signed bytes.
  if (stored !== unsigned && stored !== signed) throw damaged(after);
}

/** Octal text, or a big-endian binary number when the first bit is set. */
function number(field: Buffer, after: string): number {
  const first = field[0] ?? 0;
  if ((first & 0x80) !== 0) return binary(field, after);
  const digits = field
    .toString("latin1")
    .replace(/^[ \0]*/, "")
    .replace(/[ \0].*$/s, "");
  if (digits === "") return 0;
  if (!/^[0-7]+$/.test(digits)) throw damaged(after);
  return Number.parseInt(digits, 8);
}

function binary(field: Buffer, after: string): number {
  const isNegative = field[0] === 0xff;
  let value = 0n;
  for (const [index, byte] of field.entries())
    value = (value << 8n) | BigInt(index === 0 && !isNegative ? byte & 0x7f : byte);
  if (isNegative) value -= 1n << BigInt(8 * field.length);
  const result = Number(value);
  if (!Number.isSafeInteger(result)) throw damaged(after);
  return result;
}

function text(block: Buffer, start: number, length: number): ByteString {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return byteString(end === -1 ? field : field.subarray(0, end));
}

function damaged(after: string): Error {
  return badInput(`the archive is damaged after ${after}`, "check the file, or make the archive again");
}
