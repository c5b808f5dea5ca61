import { SandboxError } from "#core/errors.ts";
import type { FileInfo, FileType } from "#core/sandbox.ts";

/**
 * How the agent codes directory entries: the output of `list` is a sequence of records, that of `stat` exactly one.
 *
 * All integers are little-endian, nothing is padded, records follow each other without a gap:
 *
 *     offset  size  field
 *          0     4  u32  length of what follows this field: 36 + nameLength + targetLength, at most 8226
 *          4     1  u8   type: 0 file, 1 directory, 2 symlink, 3 fifo, 4 socket, 5 character device, 6 block device
 *          5     1  u8   zero
 *          6     2  u16  nameLength, at most 4095
 *          8     4  u32  mode: the permission bits only, at most 07777
 *         12     4  u32  uid, as seen in the sandbox
 *         16     4  u32  gid, as seen in the sandbox
 *         20     8  u64  size in bytes, below 2^53
 *         28     8  i64  time of the last change of the contents, nanoseconds since 1970; times beyond that are cut to it
 *         36     2  u16  targetLength, at most 4095; zero unless the type is symlink
 *         38     2  u16  zero
 *         40     -  name, then target: bytes, no terminator
 *
 * `list` gives the entries in the order of the directory, without `.` and `..`; a name is never empty there. With a depth
 * above 1 a directory is followed by its own entries, and names are paths below the directory that was listed. `stat` gives as
 * name the last component of the path it was asked for, and an empty name for `/`. Neither follows a final link.
 * The records come from a process inside the sandbox, so the reader trusts nothing: it holds at most one record that is not
 * complete, and any byte that breaks the rules above ends the reading.
 */
export const ENTRY_TYPES = [
  "file",
  "directory",
  "symlink",
  "fifo",
  "socket",
  "character-device",
  "block-device",
] as const satisfies readonly FileType[];
const PREFIX_BYTES = 4;
const FIXED_BYTES = 36;
/** PATH_MAX of Linux without its terminator: no name below a directory is longer, and no link can point further. */
const NAME_LIMIT = 4095;
const TARGET_LIMIT = 4095;
const RECORD_LIMIT = FIXED_BYTES + NAME_LIMIT + TARGET_LIMIT;

/** One record as bytes. Throws a plain `Error` for an entry that the coding cannot carry. */
export function encodeEntry(entry: FileInfo): Uint8Array {
  return encodeRecord(ENTRY_TYPES.indexOf(entry.type), entry);
}

/** The same with a type of another list. */
export function encodeRecord(type: number, entry: Omit<FileInfo, "type">): Uint8Array {
  const target = entry.target ?? new Uint8Array();
  if (entry.name.length > NAME_LIMIT || target.length > TARGET_LIMIT) throw new Error("entry too long to encode");
  const body = FIXED_BYTES + entry.name.length + target.length;
  const bytes = new Uint8Array(PREFIX_BYTES + body);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body, true);
  view.setUint8(4, type);
  view.setUint16(6, entry.name.length, true);
  view.setUint32(8, entry.mode, true);
  view.setUint32(12, entry.uid, true);
  view.setUint32(16, entry.gid, true);
  view.setBigUint64(20, BigInt(entry.size), true);
  view.setBigInt64(28, entry.mtimeNs, true);
  view.setUint16(36, target.length, true);
  bytes.set(entry.name, PREFIX_BYTES + FIXED_BYTES);
  bytes.set(target, PREFIX_BYTES + FIXED_BYTES + entry.name.length);
  return bytes;
}

/** Reads records out of chunks that may be cut anywhere. */
export class EntryDecoder {
  #rest: Uint8Array = new Uint8Array();

  /** The records completed by `chunk`. Throws `Internal` at the first byte that breaks the coding. */
  push(chunk: Uint8Array): FileInfo[] {
    const bytes = this.#rest.length === 0 ? chunk : join(this.#rest, chunk);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const entries: FileInfo[] = [];
    let at = 0;
    while (bytes.length - at >= PREFIX_BYTES) {
      const body = view.getUint32(at, true);
      if (body < FIXED_BYTES || body > RECORD_LIMIT) throw malformed(`a record of ${body} bytes`);
      if (bytes.length - at < PREFIX_BYTES + body) break;
      entries.push(decodeRecord(bytes.subarray(at, at + PREFIX_BYTES + body), ENTRY_TYPES));
      at += PREFIX_BYTES + body;
    }
    this.#rest = copy(bytes, at, bytes.length);
    return entries;
  }

  /** Throws `Internal` when a record was cut short. */
  end(): void {
    if (this.#rest.length > 0) throw malformed("a record that was cut short");
  }
}

/** What one whole record says, its type by a list of them. Throws `Internal` for one that breaks the coding. */
export function decodeRecord<Type extends string>(
  bytes: Uint8Array,
  types: readonly Type[],
): Omit<FileInfo, "type"> & { readonly type: Type } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < PREFIX_BYTES + FIXED_BYTES) throw malformed("a record that was cut short");
  const type = types[view.getUint8(4)];
  const nameLength = view.getUint16(6, true);
  const targetLength = view.getUint16(36, true);
  const mode = view.getUint32(8, true);
  if (type === undefined || view.getUint8(5) !== 0 || view.getUint16(38, true) !== 0)
    throw malformed("an unknown type");
  const nameAt = PREFIX_BYTES + FIXED_BYTES;
  if (nameLength > NAME_LIMIT || targetLength > TARGET_LIMIT || nameAt + nameLength + targetLength !== bytes.length) {
    throw malformed("lengths that do not add up");
  }
  const linked = type === "symlink" || type === "link";
  if (mode > 0o7777 || (!linked && targetLength > 0) || view.getUint32(24, true) >= 2 ** 21) {
    throw malformed("a field out of range");
  }
  return {
    name: copy(bytes, nameAt, nameAt + nameLength),
    type,
    mode,
    uid: view.getUint32(12, true),
    gid: view.getUint32(16, true),
    size: view.getUint32(24, true) * 2 ** 32 + view.getUint32(20, true),
    mtimeNs: view.getBigInt64(28, true),
    target: linked ? copy(bytes, nameAt + nameLength, bytes.length) : undefined,
  };
}

/** `slice` of a Buffer does not copy, and the chunk is its owner's again when `push` returns. */
function copy(bytes: Uint8Array, from: number, to: number): Uint8Array {
  return new Uint8Array(bytes.subarray(from, to));
}

function join(head: Uint8Array, tail: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(head.length + tail.length);
  bytes.set(head);
  bytes.set(tail, head.length);
  return bytes;
}

function malformed(what: string): SandboxError {
  return new SandboxError("Internal", `the sandbox listed files in a coding that is not ours: ${what}`);
}
