import type { FileType } from "#core/sandbox.ts";
import { type ByteString, badInput, byteString, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { readHeader, TAR_BLOCK_BYTES, type TarHeader } from "#core/tar/header.ts";
import { type PaxRecords, readPax } from "#core/tar/pax.ts";
import { SparseBody } from "#core/tar/sparse.ts";

/** Records of one entry (pax, long names) are held in memory; attributes and paths fit in this many times over. */
const MAX_RECORD_BYTES = 2 ** 20;

const TYPES: Readonly<Record<string, FileType | "link">> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "link",
  "2": "symlink",
  "3": "character-device",
  "4": "block-device",
  "5": "directory",
  "6": "fifo",
};

/** What is wrong with an entry of a kind we know and do not take. */
const REFUSED: Readonly<Record<string, string>> = {
  S: "is a sparse file: make the archive without --sparse",
  M: "continues a file of another volume: make the archive in one volume",
  D: "belongs to an incremental archive: make the archive without --listed-incremental",
};

/**
 * Reads a tar archive (ustar, pax, GNU) pushed in pieces of any size. Names stay bytes. Calls the sink for each entry and
 * its data as they come; holds no more than one header and one record. Throws `InvalidArgument` naming the entry at or
 * after which the archive is wrong.
 */
export class TarReader {
  readonly #sink: EntrySink;
  readonly #sparse: boolean;
  readonly #block = Buffer.allocUnsafe(TAR_BLOCK_BYTES);
  #filled = 0;
  #state: "header" | "data" | "record" | "end" = "header";
  #left = 0;
  #padding = 0;
  /** A sparse file under way. */
  #sparseBody: SparseBody | undefined;
  #record: { flag: string; bytes: Buffer; filled: number } | undefined;
  #global: PaxRecords = {};
  #next: PaxRecords = {};
  #last = "the start";

  /** `sparse`: the sink takes sparse files, as GNU's format 1.0 in pax has them; else they are refused. */
  constructor(sink: EntrySink, options: { readonly sparse?: boolean } = {}) {
    this.#sink = sink;
    this.#sparse = options.sparse ?? false;
  }

  push(bytes: Uint8Array): void {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.#state === "end") return;
      rest = this.#state === "header" && this.#padding === 0 ? this.#takeHeader(rest) : this.#takeBody(rest);
    }
  }

  /** Call when the input has ended: refuses an archive that stops before its end mark. */
  finish(): void {
    if (this.#state !== "end")
      throw badInput(`the archive is cut off after ${this.#last}`, "send the whole file again");
  }

  #takeHeader(bytes: Uint8Array): Uint8Array {
    const piece = bytes.subarray(0, TAR_BLOCK_BYTES - this.#filled);
    this.#block.set(piece, this.#filled);
    this.#filled += piece.length;
    if (this.#filled === TAR_BLOCK_BYTES) {
      this.#filled = 0;
      this.#header();
    }
    return bytes.subarray(piece.length);
  }

  /** Data of a file or a record, then the padding up to the next block. */
  #takeBody(bytes: Uint8Array): Uint8Array {
    if (this.#left === 0) {
      const skipped = Math.min(this.#padding, bytes.length);
      this.#padding -= skipped;
      return bytes.subarray(skipped);
    }
    const piece = bytes.subarray(0, this.#left);
    this.#left -= piece.length;
    if (this.#record === undefined) {
      (this.#sparseBody ?? this.#sink).data(piece);
    } else {
      this.#record.bytes.set(piece, this.#record.filled);
      this.#record.filled += piece.length;
    }
    if (this.#left === 0) this.#endOfBody();
    return bytes.subarray(piece.length);
  }

  #endOfBody(): void {
    this.#state = "header";
    this.#sparseBody?.end();
    this.#sparseBody = undefined;
    const record = this.#record;
    this.#record = undefined;
    if (record === undefined) return;
    const text = (): string => byteString(record.bytes).replace(/\0.*$/s, "");
    if (record.flag === "L") this.#next.path = text();
    else if (record.flag === "K") this.#next.target = text();
    else if (record.flag === "g") this.#global = { ...this.#global, ...readPax(record.bytes, "the archive") };
    // The label of a volume ("V") says nothing about an entry.
    else if (record.flag === "x")
      this.#next = { ...this.#next, ...readPax(record.bytes, `the entry after ${this.#last}`) };
  }

  #header(): void {
    const header = readHeader(this.#block, this.#last);
    if (header === undefined) {
      this.#state = "end";
      return;
    }
    if (!Number.isSafeInteger(header.size) || header.size < 0)
      throw badInput(`the archive is damaged after ${this.#last}`);
    if ("xgLKV".includes(header.flag)) this.#startRecord(header);
    else this.#startEntry(header);
  }

  #startRecord(header: TarHeader): void {
    if (header.size > MAX_RECORD_BYTES) throw badInput(`the entry after ${this.#last} has an oversized header`);
    this.#record = { flag: header.flag, bytes: Buffer.alloc(header.size), filled: 0 };
    this.#startBody(header.size);
  }

  #startEntry(header: TarHeader): void {
    const records = { ...this.#global, ...this.#next };
    this.#next = {};
    const entry = amend(header, records);
    this.#last = `the entry ${shown(entry.path)}`;
    if (records.sparse === undefined) this.#sink.entry(entry);
    else this.#sparseBody = this.#sparseFile(entry, records.sparse);
    this.#startBody(entry.size);
  }

  #sparseFile(entry: TreeEntry, records: ReadonlyMap<string, ByteString>): SparseBody {
    const [name, size] = [records.get("name"), Number(records.get("realsize"))];
    const known = records.get("major") === "1" && records.get("minor") === "0" && entry.type === "file";
    if (!this.#sparse || !known || name === undefined || !Number.isSafeInteger(size) || size < 0) {
      throw badInput(`${shown(name ?? entry.path)} ${REFUSED.S}`);
    }
    this.#last = `the entry ${shown(name)}`;
    return new SparseBody(this.#sink, { ...entry, path: name, size }, entry.size);
  }

  #startBody(size: number): void {
    this.#left = size;
    this.#padding = (TAR_BLOCK_BYTES - (size % TAR_BLOCK_BYTES)) % TAR_BLOCK_BYTES;
    this.#state = "data";
    if (size === 0) this.#endOfBody();
  }
}

function amend(header: TarHeader, records: PaxRecords): TreeEntry {
  const path = records.path ?? header.path;
  const known = TYPES[header.flag];
  if (known === undefined) {
    throw badInput(`${shown(path)} ${REFUSED[header.flag] ?? `is of the unknown type ${JSON.stringify(header.flag)}`}`);
  }
  // Archives older than POSIX mark directories by a slash alone.
  const type = known === "file" && path.endsWith("/") ? "directory" : known;
  return {
    path,
    type,
    mode: header.mode,
    uid: records.uid ?? header.uid,
    gid: records.gid ?? header.gid,
    mtimeS: records.mtimeS ?? header.mtimeS,
    mtimeNs: records.mtimeNs ?? 0,
    xattrs: records.xattrs,
    size: type === "file" ? (records.size ?? header.size) : 0,
    target: records.target ?? header.target,
    major: header.major,
    minor: header.minor,
  };
}
