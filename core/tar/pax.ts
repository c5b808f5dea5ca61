import { type ByteString, badInput } from "#core/tar/entry.ts";

/** What pax records say about the next entry, or about all that follow. */
export interface PaxRecords {
  path?: ByteString;
  target?: ByteString;
  size?: number;
  uid?: number;
  gid?: number;
  mtimeS?: number;
  mtimeNs?: number;
  xattrs?: Map<ByteString, Uint8Array>;
  /** Records about a sparse file, by what follows `GNU.sparse.` in their names. */
  sparse?: Map<string, ByteString>;
}

const XATTR = "SCHILY.xattr.";
const SPARSE = "GNU.sparse.";

/** Reads `length key=value\n` records. Bytes stay bytes. Refuses records that do not add up, naming `owner`. */
export function readPax(bytes: Buffer, owner: string): PaxRecords {
  const records: PaxRecords = {};
  for (let start = 0; start < bytes.length; ) {
    const space = bytes.indexOf(0x20, start);
    const length = space === -1 ? Number.NaN : decimal(bytes.toString("latin1", start, space));
    const end = start + length;
    const equals = bytes.indexOf(0x3d, space);
    if (!(end <= bytes.length) || space > start + 8 || equals === -1 || equals >= end || bytes[end - 1] !== 0x0a) {
      throw badInput(`the pax header of ${owner} is damaged`);
    }
    take(records, bytes.toString("latin1", space + 1, equals), bytes.subarray(equals + 1, end - 1), owner);
    start = end;
  }
  return records;
}

function take(records: PaxRecords, key: ByteString, value: Buffer, owner: string): void {
  if (key.startsWith(XATTR)) {
    records.xattrs ??= new Map();
    records.xattrs.set(key.slice(XATTR.length), Uint8Array.from(value));
    return;
  }
  const text = value.toString("latin1");
  if (key.startsWith(SPARSE)) {
    records.sparse ??= new Map();
    records.sparse.set(key.slice(SPARSE.length), text);
    return;
  }
  switch (key) {
    case "path":
      records.path = text;
      break;
    case "linkpath":
      records.target = text;
      break;
    case "size":
    case "uid":
    case "gid":
      records[key] = whole(text, key, owner);
      break;
    case "mtime":
      Object.assign(records, time(text, owner));
  }
}

function whole(text: string, key: string, owner: string): number {
  const value = decimal(text);
  if (!Number.isSafeInteger(value)) throw badInput(`the pax header of ${owner} has an impossible ${key}`);
  return value;
}

function decimal(text: string): number {
  return /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
}

function time(text: string, owner: string): { mtimeS: number; mtimeNs: number } {
  const match = /^(-?)(\d{1,15})(?:\.(\d*))?$/.exec(text);
  if (match === null) throw badInput(`the pax header of ${owner} has an impossible mtime`);
  const seconds = Number(match[2]);
  const ns = Number((match[3] ?? "").slice(0, 9).padEnd(9, "0"));
  if (match[1] === "") return { mtimeS: seconds, mtimeNs: ns };
  return ns === 0 ? { mtimeS: -seconds, mtimeNs: 0 } : { mtimeS: -seconds - 1, mtimeNs: 1_000_000_000 - ns };
}
