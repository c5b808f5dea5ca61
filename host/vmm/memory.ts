import { closeSync, fstatSync, ftruncateSync, openSync, readFileSync, readSync, rmSync, statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";
import { dataExtents } from "#host/sys/holes.ts";
import { ioctlNumber } from "#host/sys/ioctl.ts";
import { processStartTicks } from "#host/sys/process.ts";
import type { MachineProcess } from "./vmm.ts";

const PAGE_BYTES = 4096;
const ENTRY_BYTES = 8;
/** Of an entry of `/proc/PID/pagemap`, in its upper half: the page is there, is swapped out, belongs to a file. */
const [PRESENT, SWAPPED, OF_FILE] = [2 ** 31, 2 ** 30, 2 ** 29];
/** Pages between two written ones that are saved along with them: a call costs as much as some pages do. */
const GAP_PAGES = 8;
const PIECE_BYTES = 1024 * 1024;
const NOTHING = Buffer.alloc(PIECE_BYTES);
const FICLONE = 0x40049409;

/** A part of a process's memory, as that process tells. */
export interface ProcessMemory {
  readonly address: number;
  readonly sizeBytes: number;
}

/**
 * Makes `path` the memory of a machine that is held and maps its memory privately, from a file of its size or from none. Where `path` is the very file that it maps, only what the machine has
 * written since is added to it; else it becomes a copy of that file first, which shares its data where the file system can. What others map under that name stays as it is.
 * Without its address the memory is the file's mapping of that size.
 */
export async function saveMemory(
  process: MachineProcess,
  memory: { readonly sizeBytes: number; readonly address?: number },
  path: string,
): Promise<void> {
  const { sizeBytes } = memory;
  const mapping = findMapping(process.pid, memory);
  const mapped = mapping.path === undefined ? undefined : openSync(mapping.path, "r");
  try {
    const isOwn = mapped !== undefined && isSameFile(mapped, path);
    if (!isOwn) rmSync(path, { force: true });
    await using file = await open(path, isOwn ? "r+" : "wx+", 0o600);
    if (mapped === undefined) await file.truncate(sizeBytes);
    else if (!isOwn) await copySparse(mapped, file, sizeBytes);
    await using from = await open(`/proc/${process.pid}/mem`, "r");
    await copyWritten(process.pid, mapping, { memory: from, file });
    // What was read is only a machine's memory if the machine was there all the while.
    if (processStartTicks(process.pid) !== process.startTicks)
      throw new SandboxError("SandboxLost", "the machine ended while it was saved");
    await file.datasync();
  } finally {
    if (mapped !== undefined) closeSync(mapped);
  }
}

/** Writes a part of the memory of a process that is held into a file. */
export async function saveRange(
  { pid }: MachineProcess,
  { address, sizeBytes }: ProcessMemory,
  path: string,
): Promise<void> {
  await using from = await open(`/proc/${pid}/mem`, "r");
  await using file = await open(path, "w", 0o600);
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  for (let at = 0; at < sizeBytes; at += PIECE_BYTES) {
    const { bytesRead } = await from.read(piece, 0, Math.min(PIECE_BYTES, sizeBytes - at), address + at);
    const bytes = piece.subarray(0, bytesRead);
    if (!bytes.equals(NOTHING.subarray(0, bytesRead))) await writeAll(file, bytes, at);
  }
  await file.truncate(sizeBytes);
  await file.datasync();
}

/** Writes a file into a part of the memory of a process that is held; nothing when there is no file of that size. */
export async function restoreRange({ pid }: MachineProcess, range: ProcessMemory, path: string): Promise<void> {
  if (statSync(path, { throwIfNoEntry: false })?.size !== range.sizeBytes) return;
  await using file = await open(path, "r");
  await using to = await open(`/proc/${pid}/mem`, "r+");
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  for (let at = 0; at < range.sizeBytes; at += PIECE_BYTES) {
    const { bytesRead } = await file.read(piece, 0, Math.min(PIECE_BYTES, range.sizeBytes - at), at);
    await writeAll(to, piece.subarray(0, bytesRead), range.address + at);
  }
}

interface Mapping {
  readonly start: number;
  readonly sizeBytes: number;
  /** Leads to the file, whatever its name is by now; undefined: the memory is the process's own. */
  readonly path: string | undefined;
}

function findMapping(pid: number, { sizeBytes, address }: { sizeBytes: number; address?: number }): Mapping {
  for (const line of readFileSync(`/proc/${pid}/maps`, "latin1").split("\n")) {
    const [range = "", rights, , , inode] = line.split(/\s+/);
    const [start = 0, end = 0] = range.split("-").map((text) => Number.parseInt(text, 16));
    if (rights !== "rw-p" || end - start !== sizeBytes) continue;
    if (address === undefined ? inode === "0" : start !== address) continue;
    return { start, sizeBytes, path: inode === "0" ? undefined : `/proc/${pid}/map_files/${range}` };
  }
  throw new SandboxError("SandboxLost", "a machine without its memory");
}

function isSameFile(fd: number, path: string): boolean {
  const other = statSync(path, { throwIfNoEntry: false });
  const own = fstatSync(fd);
  return other !== undefined && own.ino === other.ino && own.dev === other.dev;
}

/** Makes `to` a file with the content of `from`: shares its data where the file system can, and copies it else, without its holes. */
export async function copyFileSparse(from: string, to: string): Promise<void> {
  const source = openSync(from, "r");
  try {
    await using file = await open(to, "w+", 0o600);
    await copySparse(source, file, fstatSync(source).size);
  } finally {
    closeSync(source);
  }
}

async function copySparse(from: number, to: FileHandle, sizeBytes: number): Promise<void> {
  try {
    ioctlNumber(to.fd, FICLONE, from);
    return;
  } catch {
    // Other file systems, and two of them, have no clones.
  }
  ftruncateSync(to.fd, sizeBytes);
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  for (const { offset, size } of dataExtents(from, sizeBytes)) {
    for (let at = offset; at < offset + size; at += PIECE_BYTES) {
      const length = Math.min(PIECE_BYTES, offset + size - at);
      readSync(from, piece, 0, length, at);
      await writeAll(to, piece.subarray(0, length), at);
    }
  }
}

async function copyWritten(
  pid: number,
  mapping: Mapping,
  { memory, file }: { readonly memory: FileHandle; readonly file: FileHandle },
): Promise<void> {
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  for (const run of writtenRuns(pid, mapping)) {
    for (let at = run.from; at < run.to; at += PIECE_BYTES) {
      const { bytesRead } = await memory.read(piece, 0, Math.min(PIECE_BYTES, run.to - at), mapping.start + at);
      await writeAll(file, piece.subarray(0, bytesRead), at);
    }
  }
}

/** A disk takes as much of a write as it has room for, and says that it is full when it is given the rest. */
async function writeAll(file: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
  }
}

interface Run {
  readonly from: number;
  readonly to: number;
}

/** Where the process has pages of its own in place of those of the file, as offsets; what lies closer together is one. */
function* writtenRuns(pid: number, { start, sizeBytes }: Mapping): Generator<Run, void, undefined> {
  let run: { from: number; to: number } | undefined;
  for (const page of writtenPages(pid, start, sizeBytes)) {
    const at = page * PAGE_BYTES;
    if (run !== undefined && at - run.to > GAP_PAGES * PAGE_BYTES) {
      yield run;
      run = undefined;
    }
    run ??= { from: at, to: at };
    run.to = at + PAGE_BYTES;
  }
  if (run !== undefined) yield run;
}

function* writtenPages(pid: number, start: number, sizeBytes: number): Generator<number, void, undefined> {
  const fd = openSync(`/proc/${pid}/pagemap`, "r");
  try {
    const entries = Buffer.allocUnsafe(PIECE_BYTES);
    const pages = sizeBytes / PAGE_BYTES;
    for (let first = 0; first < pages; first += PIECE_BYTES / ENTRY_BYTES) {
      const wanted = Math.min(PIECE_BYTES, (pages - first) * ENTRY_BYTES);
      const got = readSync(fd, entries, 0, wanted, (start / PAGE_BYTES + first) * ENTRY_BYTES);
      for (let at = 0; at < got; at += ENTRY_BYTES) {
        const flags = entries.readUInt32LE(at + 4);
        const isThere = flags >= PRESENT || (flags & SWAPPED) !== 0;
        if (isThere && (flags & OF_FILE) === 0) yield first + at / ENTRY_BYTES;
      }
    }
  } finally {
    closeSync(fd);
  }
}
