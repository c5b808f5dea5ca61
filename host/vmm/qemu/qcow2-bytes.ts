import type { FileHandle } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";
import type { Extent } from "#core/tree.ts";
import { dataExtents } from "#host/sys/holes.ts";
import { QCOW2 } from "./qcow2.ts";

/** Bytes of a disk, and where on it they are. */
export interface DiskPart {
  readonly offset: number;
  /** Good until the next part is asked for. */
  readonly bytes: Buffer;
}

const { clusterBytes: CLUSTER_BYTES, tableAt: TABLE_AT, entryBytes: ENTRY_BYTES } = QCOW2;
const ZEROS = Buffer.alloc(CLUSTER_BYTES);
/** Of an entry of the second table: its cluster is compressed, it reads as zeros. */
const COMPRESSED = 1n << 62n;
const ZERO = 1n;
/** Of an entry of either table: where what it stands for lies in the file. */
const PLACE = 0x00ff_ffff_ffff_fe00n;
/** Header fields that a disk of ours has, by their offsets; a monitor changes none of them. */
const SAME: readonly (readonly [at: number, value: bigint])[] = [
  [0, 0x514649fb_00000003n],
  [8, 0n], // names no other file
  [40, BigInt(TABLE_AT)],
  [64, 0n], // has no snapshots
  [72, 0n], // is not damaged, and keeps its data in this file
];

/**
 * The plain bytes of a disk that `makeQcow2` made and a computer wrote to, in order, without what is zeros. What it has not written is read from `base`, which has
 * plain bytes. Whoever wrote it may have taken the monitor over: it is read here, in bounded memory, and within the file. Throws `FailedPrecondition` for what is no such disk.
 */
export async function* diskParts(
  { file, base }: { readonly file: FileHandle; readonly base: FileHandle | undefined },
  sizeBytes: number,
): AsyncGenerator<DiskPart, void, undefined> {
  await checkHeader(file, sizeBytes);
  const below = new Below(base, await sizeOf(base));
  const bytes = Buffer.alloc(CLUSTER_BYTES);
  for await (const { offset, place } of clusters(file, sizeBytes)) {
    const part = bytes.subarray(0, Math.min(CLUSTER_BYTES, sizeBytes - offset));
    if (place === "zeros" || (place === undefined && !below.hasData(offset, part.length))) continue;
    if (place === undefined) await below.read(part, offset);
    else await readWhole(file, part, place);
    if (!part.equals(ZEROS.subarray(0, part.length))) yield { offset, bytes: part };
  }
}

async function checkHeader(file: FileHandle, sizeBytes: number): Promise<void> {
  const head = Buffer.alloc(QCOW2.headerBytes);
  await readWhole(file, head, 0);
  const isOurs = SAME.every(([at, value]) => head.readBigUInt64BE(at) === value);
  const entries = Math.ceil(sizeBytes / ENTRY_BYTES);
  const isSized = head.readBigUInt64BE(24) === BigInt(sizeBytes) && head.readUInt32BE(36) === entries;
  if (isOurs && isSized && head.readUInt32BE(20) === QCOW2.clusterBits && head.readUInt32BE(32) === 0) return;
  throw damaged("its header is not the one that was made");
}

/** Each cluster of the disk, and where in the file it lies; undefined: it was never written. */
async function* clusters(
  file: FileHandle,
  sizeBytes: number,
): AsyncGenerator<{ readonly offset: number; readonly place: number | "zeros" | undefined }, void, undefined> {
  const first = Buffer.alloc(8);
  const second = Buffer.alloc(CLUSTER_BYTES);
  for (let number = 0; number * ENTRY_BYTES < sizeBytes; number++) {
    await readWhole(file, first, TABLE_AT + 8 * number);
    const table = placeOf(first.readBigUInt64BE(0));
    if (table === undefined) second.fill(0);
    else await readWhole(file, second, table);
    for (let at = 0; at < CLUSTER_BYTES; at += 8) {
      const offset = number * ENTRY_BYTES + (at / 8) * CLUSTER_BYTES;
      if (offset >= sizeBytes) return;
      const entry = second.readBigUInt64BE(at);
      if ((entry & COMPRESSED) !== 0n) throw damaged("a cluster of it is compressed");
      yield { offset, place: (entry & ZERO) === 0n ? placeOf(entry) : "zeros" };
    }
  }
}

/** Undefined: there is none. */
function placeOf(entry: bigint): number | undefined {
  const place = Number(entry & PLACE);
  if (place === 0) return undefined;
  if (place % CLUSTER_BYTES !== 0) throw damaged("a cluster of it begins between two");
  if (!Number.isSafeInteger(place)) throw damaged("a cluster of it is behind its end");
  return place;
}

async function readWhole(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  const { bytesRead } = await file.read(bytes, 0, bytes.length, at);
  if (bytesRead === 0) throw damaged("a cluster of it is behind its end");
  // The last cluster of a file may be cut off: what is behind its end is zeros.
  bytes.fill(0, bytesRead);
}

async function sizeOf(file: FileHandle | undefined): Promise<number> {
  return file === undefined ? 0 : (await file.stat()).size;
}

function damaged(why: string): SandboxError {
  return new SandboxError("FailedPrecondition", `the disk is damaged: ${why}`);
}

/** What the disk began with. Is read from front to back. */
class Below {
  readonly #file: FileHandle | undefined;
  readonly #extents: Iterator<Extent, void>;
  #extent: Extent | undefined;

  constructor(file: FileHandle | undefined, sizeBytes: number) {
    this.#file = file;
    this.#extents = (file === undefined ? [] : dataExtents(file.fd, sizeBytes))[Symbol.iterator]();
    this.#next();
  }

  /** False: from there on there are so many zeros, and nobody has to look at them. */
  hasData(offset: number, length: number): boolean {
    while (this.#extent !== undefined && this.#extent.offset + this.#extent.size <= offset) this.#next();
    return this.#extent !== undefined && this.#extent.offset < offset + length;
  }

  /** Fills it with the bytes from there on, with zeros where there are none. */
  async read(bytes: Buffer, offset: number): Promise<void> {
    const got = await this.#file?.read(bytes, 0, bytes.length, offset);
    bytes.fill(0, got?.bytesRead ?? 0);
  }

  #next(): void {
    this.#extent = this.#extents.next().value ?? undefined;
  }
}
