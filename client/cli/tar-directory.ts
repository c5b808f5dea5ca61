import type { BigIntStats } from "node:fs";
import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync, readlinkSync, readSync } from "node:fs";
import { BATCH_BYTES, Batch } from "#core/tar/batch.ts";
import { endOfArchive, type TarEntry, type TarEntryType, tarHeader, tarPadding } from "#core/tar/writer.ts";
import { CliError, hasCode } from "./cli-error.ts";

/**
 * A directory of this machine as a tar stream: modes, links (hard ones within the tree too) and times to the nanosecond
 * are kept, names are bytes, owners become 0 unless `owners` keeps them, entries come sorted so that an unchanged directory gives the same bytes.
 * Links are never followed. Sockets are left out: they mean nothing elsewhere.
 *
 * Throws `CliError` before the first byte when the directory cannot be read, and later when something inside cannot.
 */
export async function* tarDirectory(
  directory: string,
  options: { readonly owners?: boolean } = {},
): AsyncGenerator<Uint8Array> {
  const root = Buffer.from(directory);
  assertDirectory(directory);
  const links = new Map<string, Buffer>();
  const batch = new Batch();
  for (const { path, name, stats } of walk(root)) {
    for (const part of partsOf(path, name, options.owners === true ? stats : Object.assign(stats, NOBODYS), links)) {
      const full = batch.add(part);
      if (full !== undefined) yield full;
    }
  }
  batch.push(endOfArchive());
  yield batch.take();
}

function assertDirectory(directory: string): void {
  try {
    readdirSync(directory);
  } catch (error) {
    throw unreadable(Buffer.from(directory), error);
  }
}

/** The same tree gives the same bytes, whoever has it. */
const NOBODYS = { uid: 0n, gid: 0n };

interface Found {
  readonly path: Buffer;
  /** Below the root; empty for the root itself. */
  readonly name: Buffer;
  readonly stats: BigIntStats;
}

/** Depth first, a directory before its entries. A list instead of recursion: depth is the user's. */
function* walk(root: Buffer): Generator<Found> {
  // The root may be reached through a link; nothing below it is.
  const pending: { readonly path: Buffer; readonly name: Buffer }[] = [
    { path: Buffer.concat([root, Buffer.from("/.")]), name: Buffer.alloc(0) },
  ];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { path, name } = next;
    const stats = reading(path, () => lstatSync(path, { bigint: true }));
    yield { path, name, stats };
    if (!stats.isDirectory()) continue;
    const entries = reading(path, () => readdirSync(path, { encoding: "buffer" }));
    for (const entry of entries.sort((a, b) => Buffer.compare(b, a))) {
      pending.push({ path: join(path, entry), name: name.length === 0 ? entry : join(name, entry) });
    }
  }
}

function* partsOf(path: Buffer, name: Buffer, stats: BigIntStats, links: Map<string, Buffer>): Generator<Uint8Array> {
  if (stats.isSocket()) return;
  const type = typeOf(stats);
  const entry: TarEntry = {
    type,
    name: type === "directory" ? Buffer.concat([name.length === 0 ? Buffer.from(".") : name, Buffer.from("/")]) : name,
    mode: Number(stats.mode & 0o7777n),
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    size: type === "file" ? Number(stats.size) : 0,
    mtimeNs: stats.mtimeNs,
    target: type === "symlink" ? reading(path, () => readlinkSync(path, { encoding: "buffer" })) : undefined,
    device: type === "character-device" || type === "block-device" ? Number(stats.rdev) : 0,
  };
  const identity = `${stats.dev}:${stats.ino}`;
  const earlier = stats.nlink > 1n && type !== "directory" ? links.get(identity) : undefined;
  if (earlier !== undefined) {
    yield tarHeader({ ...entry, type: "link", size: 0, target: earlier });
    return;
  }
  if (stats.nlink > 1n && type !== "directory") links.set(identity, name);
  yield tarHeader(entry);
  if (type === "file") yield* contentOf(path, entry.size, stats.ino);
}

/** Exactly `size` bytes: the header has promised them. */
function* contentOf(path: Buffer, size: number, inode: bigint): Generator<Uint8Array> {
  const fd = reading(path, () => openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK));
  try {
    if (fstatSync(fd, { bigint: true }).ino !== inode) throw changed(path);
    for (let left = size; left > 0; ) {
      const chunk = Buffer.allocUnsafe(Math.min(left, BATCH_BYTES));
      const count = reading(path, () => readSync(fd, chunk, 0, chunk.length, null));
      if (count === 0) throw changed(path);
      left -= count;
      yield chunk.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
  yield tarPadding(size);
}

function typeOf(stats: BigIntStats): TarEntryType {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  if (stats.isSymbolicLink()) return "symlink";
  if (stats.isFIFO()) return "fifo";
  return stats.isCharacterDevice() ? "character-device" : "block-device";
}

function join(directory: Buffer, name: Buffer): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), name]);
}

function reading<T>(path: Buffer, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw unreadable(path, error);
  }
}

function unreadable(path: Buffer, cause: unknown): unknown {
  if (hasCode(cause, "ENOENT")) return new CliError("NotFound", `${path} does not exist`, { cause });
  if (hasCode(cause, "EACCES", "EPERM")) return new CliError("PermissionDenied", `${path} cannot be read`, { cause });
  if (hasCode(cause, "ENOTDIR")) return new CliError("InvalidArgument", `${path} is not a directory`, { cause });
  return cause;
}

function changed(path: Buffer): CliError {
  return new CliError("FailedPrecondition", `${path} changed while it was read`, {
    hint: "try again when nobody writes there",
  });
}
