import { decodeRecord, ENTRY_TYPES, encodeRecord } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import type { FileInfo } from "#core/sandbox.ts";

/**
 * How a tree goes between edge and agent: a stream of records, each with its length, in the same form both ways.
 *
 *     offset  size  field
 *          0     4  u32  length of what follows this field
 *          4     1  u8   type: 0 to 6 an entry as in `entries.ts`; 7 a hard link, laid out like an entry; 8 data; 9 map; 10 end
 *          5     3  zero, in data, map and end
 *          8     -  data: 1 to 65,536 bytes. map: u64 offset and u64 size of each extent, at most 4,096
 *
 * Names are paths below the root of the tree, without `.` and `..`; the root itself is the directory without a name. An entry
 * comes after the directory it is in. The target of a hard link is the name of an earlier entry.
 *
 * A file with a size is followed by its data. When it has holes, maps come first: its extents in order, at most 65,536, and the data
 * is theirs alone, one after the other; one map without extents is a file that is all hole. The stream is whole when `end` has come.
 */
const TYPES = [...ENTRY_TYPES, "link"] as const;
const DATA = 8;
const MAP = 9;
const END = 10;
const HEAD_BYTES = 8;
const PREFIX_BYTES = 4;
const DATA_LIMIT_BYTES = 65_536;
const EXTENT_BYTES = 16;
const MAP_LIMIT = 4096;
/** Extents of one file. */
export const TREE_EXTENTS_LIMIT = 65_536;
/** The longest record that is kept until it is whole: data is passed on as it comes. */
const RECORD_LIMIT = HEAD_BYTES + MAP_LIMIT * EXTENT_BYTES;

/** A part of a file that is no hole. */
export interface Extent {
  readonly offset: number;
  readonly size: number;
}

/** One file of a tree; `link` is a further name of an earlier one. */
export type TreeFile = Omit<FileInfo, "type"> & { readonly type: (typeof TYPES)[number] };

/** What a stream says, in order. */
export type TreePart =
  | { readonly type: "entry"; readonly file: TreeFile }
  | { readonly type: "map"; readonly extents: readonly Extent[] }
  | { readonly type: "data"; readonly bytes: Uint8Array }
  | { readonly type: "end" };

/** The record of an entry. Throws a plain `Error` for one that the coding cannot carry. */
export function encodeTreeFile(file: TreeFile): Uint8Array {
  return encodeRecord(TYPES.indexOf(file.type), file);
}

/** Records of any number of bytes. */
export function encodeTreeData(bytes: Uint8Array): Uint8Array[] {
  const records: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += DATA_LIMIT_BYTES) {
    const piece = bytes.subarray(at, at + DATA_LIMIT_BYTES);
    records.push(head(DATA, piece.length), piece);
  }
  return records;
}

/** Records of the extents of the file before them. */
export function encodeTreeMap(extents: readonly Extent[]): Uint8Array[] {
  const records: Uint8Array[] = [];
  for (let at = 0; at === 0 || at < extents.length; at += MAP_LIMIT) {
    const some = extents.slice(at, at + MAP_LIMIT);
    const body = new DataView(new ArrayBuffer(some.length * EXTENT_BYTES));
    for (const [index, { offset, size }] of some.entries()) {
      body.setBigUint64(index * EXTENT_BYTES, BigInt(offset), true);
      body.setBigUint64(index * EXTENT_BYTES + 8, BigInt(size), true);
    }
    records.push(head(MAP, body.byteLength), new Uint8Array(body.buffer));
  }
  return records;
}

/** The record that makes a stream whole. */
export function encodeTreeEnd(): Uint8Array {
  return head(END, 0);
}

function head(type: number, size: number): Uint8Array {
  const bytes = new Uint8Array(HEAD_BYTES);
  new DataView(bytes.buffer).setUint32(0, HEAD_BYTES - PREFIX_BYTES + size, true);
  bytes[4] = type;
  return bytes;
}

/** Reads a stream out of chunks that may be cut anywhere; the sandbox that sends it is not trusted. */
export class TreeDecoder {
  #rest: Uint8Array = new Uint8Array();
  /** Bytes of a data record that have not come yet. */
  #left = 0;
  #ended = false;

  /**
   * The parts completed by `chunk`; data is a view of it. Throws `Internal` at the first byte that breaks the coding.
   */
  *push(chunk: Uint8Array): Generator<TreePart, void, undefined> {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (bytes.length > 0) {
      if (this.#left > 0) {
        const piece = bytes.subarray(0, this.#left);
        this.#left -= piece.length;
        bytes = bytes.subarray(piece.length);
        yield { type: "data", bytes: piece };
        continue;
      }
      const taken = this.#extent(bytes);
      if (taken === undefined) break;
      const record = bytes.subarray(0, taken);
      bytes = bytes.subarray(taken);
      const part = this.#part(record);
      if (part !== undefined) yield part;
    }
    this.#rest = new Uint8Array(bytes);
  }

  /** Throws `Internal` when the stream was not whole. */
  end(): void {
    if (!this.#ended || this.#rest.length > 0) throw malformed("a stream that was cut short");
  }

  /** Bytes of the record at the start, of data its head alone; undefined while it is not whole. */
  #extent(bytes: Uint8Array): number | undefined {
    if (this.#ended) throw malformed("something after its end");
    if (bytes.length < HEAD_BYTES) return undefined;
    const body = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    if (body < HEAD_BYTES - PREFIX_BYTES || PREFIX_BYTES + body > RECORD_LIMIT)
      throw malformed(`a record of ${body} bytes`);
    if (bytes[4] === DATA) return HEAD_BYTES;
    return PREFIX_BYTES + body > bytes.length ? undefined : PREFIX_BYTES + body;
  }

  #part(record: Uint8Array): TreePart | undefined {
    const type = record[4] ?? 0;
    if (type < DATA) return { type: "entry", file: checked(decodeRecord(record, TYPES)) };
    const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
    if ((view.getUint32(4, true) & 0xffffff00) !== 0) throw malformed("a head that is not ours");
    if (type === DATA) {
      this.#left = view.getUint32(0, true) - (HEAD_BYTES - PREFIX_BYTES);
      if (this.#left === 0 || this.#left > DATA_LIMIT_BYTES) throw malformed(`${this.#left} bytes of data`);
      return undefined;
    }
    if (type === MAP) return { type: "map", extents: extentsOf(view) };
    if (type !== END || record.length !== HEAD_BYTES) throw malformed("an unknown record");
    this.#ended = true;
    return { type: "end" };
  }
}

/** Names lead down from the root and nowhere else. */
function checked(file: TreeFile): TreeFile {
  const names = [file.name, ...(file.type === "link" ? [file.target ?? new Uint8Array()] : [])];
  for (const [index, name] of names.entries()) {
    if (index === 0 && name.length === 0 && file.type === "directory") continue;
    const parts = Buffer.from(name).toString("latin1").split("/");
    if (parts.some((part) => part === "" || part === "." || part === ".." || part.includes("\0"))) {
      throw malformed("a name that leads elsewhere");
    }
  }
  return file;
}

function extentsOf(view: DataView): Extent[] {
  const extents: Extent[] = [];
  if ((view.byteLength - HEAD_BYTES) % EXTENT_BYTES !== 0) throw malformed("half an extent");
  for (let at = HEAD_BYTES; at < view.byteLength; at += EXTENT_BYTES) {
    const [offset, size] = [Number(view.getBigUint64(at, true)), Number(view.getBigUint64(at + 8, true))];
    if (!Number.isSafeInteger(offset + size)) throw malformed("an extent beyond all files");
    extents.push({ offset, size });
  }
  return extents;
}

function malformed(what: string): SandboxError {
  return new SandboxError("Internal", `the sandbox sent a tree in a coding that is not ours: ${what}`);
}
