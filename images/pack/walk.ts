import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  readlinkSync,
} from "node:fs";
import { setImmediate } from "node:timers/promises";
import { SandboxError } from "#core/errors.ts";
import type { FileType } from "#core/sandbox.ts";
import { type ByteString, byteString, type TreeEntry } from "#core/tar/entry.ts";
import { readXattrs } from "#host/sys/xattrs.ts";
import type { Names } from "./patterns.ts";

const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;

/** How long the event loop is kept at a stretch. */
const TURN_MS = 5;

/** One name that a walk came by. */
export interface Found {
  /** From the root down, its own last; the root has none. */
  readonly names: Names;
  readonly stats: BigIntStats;
  /** Leads to it by way of an open directory, and is short however deep that lies. Not to be followed. Valid until the next one. */
  readonly at: Buffer;
}

/**
 * Takes what a walk finds, with what it made of the directory that holds it. Of a directory it returns what those below will be
 * visited with; `undefined`: nobody looks there.
 */
export type Visit<T> = (found: Found, above: T | undefined) => Promise<T | undefined>;

/**
 * Visits a directory and everything below it, each directory before what is in it. Nothing is ever reached by more than one name
 * in an open directory, and no link is followed, so that whatever the tree is, or becomes, a walk does not leave it. Takes one
 * descriptor and the names of the directories on the way, at any depth. Rejects with `FailedPrecondition` when directories are
 * moved meanwhile.
 */
export async function walk<T>(root: string, visit: Visit<T>, signal: AbortSignal): Promise<void> {
  const turns = new Turns(signal);
  let fd = openDirectory(Buffer.from(root));
  const way: Level<T>[] = [];
  const names: ByteString[] = [];
  const enter = async (made: T) => way.push(await readLevel({ fd, names, made }, visit, turns));
  try {
    const at = Buffer.from(`/proc/self/fd/${fd}/.`);
    const made = await visit({ names, stats: fstatSync(fd, { bigint: true }), at }, undefined);
    if (made !== undefined) await enter(made);
    for (let level = way.at(-1); level !== undefined; level = way.at(-1)) {
      const next = level.directories.pop();
      if (next !== undefined) {
        fd = replace(fd, openDirectory(childOf(fd, next.name)));
        names.push(byteString(next.name));
        await enter(next.made);
        continue;
      }
      way.pop();
      names.pop();
      const above = way.at(-1);
      if (above !== undefined) fd = replace(fd, openAbove(fd, above));
    }
  } finally {
    closeSync(fd);
  }
}

/** A directory on the way, with those of its directories that were not walked yet. */
interface Level<T> {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly directories: { readonly name: Buffer; readonly made: T }[];
}

/** An open one. */
interface Directory<T> {
  readonly fd: number;
  readonly names: Names;
  readonly made: T;
}

/** Visits what is in one directory. */
async function readLevel<T>({ fd, names, made }: Directory<T>, visit: Visit<T>, turns: Turns): Promise<Level<T>> {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  const directories: Level<T>["directories"] = [];
  for (const name of namesIn(fd)) {
    const at = childOf(fd, name);
    const stats = lstatSync(at, { bigint: true });
    const below = await visit({ names: [...names, byteString(name)], stats, at }, made);
    if (below !== undefined && stats.isDirectory()) directories.push({ name, made: below });
    await turns.pause();
  }
  return { dev, ino, directories };
}

function* namesIn(fd: number): Generator<Buffer, void, undefined> {
  // Node takes the encoding `buffer` here as in readdir; its types do not know that.
  const open: (path: string, options: object) => { readSync(): { name: unknown } | null; closeSync(): void } =
    opendirSync;
  const directory = open(`/proc/self/fd/${fd}`, { encoding: "buffer", bufferSize: 512 });
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      if (Buffer.isBuffer(entry.name)) yield entry.name;
    }
  } finally {
    directory.closeSync();
  }
}

function childOf(fd: number, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), name]);
}

function openDirectory(path: Buffer): number {
  return openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/** The directory that an open one lies in, which must be the one it was reached from. */
function openAbove<T>(fd: number, level: Level<T>): number {
  const above = openDirectory(Buffer.from(`/proc/self/fd/${fd}/..`));
  const { dev, ino } = fstatSync(above, { bigint: true });
  if (dev === level.dev && ino === level.ino) return above;
  closeSync(above);
  throw new SandboxError("FailedPrecondition", "directories of the sandbox were moved while they were read", {
    hint: "try again, or let it be held still: consistent true",
  });
}

function replace(old: number, next: number): number {
  closeSync(old);
  return next;
}

/** Gives the event loop its turns. */
class Turns {
  readonly #signal: AbortSignal;
  #startedMs = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  async pause(): Promise<void> {
    if (performance.now() - this.#startedMs < TURN_MS) return;
    await setImmediate();
    this.#signal.throwIfAborted();
    this.#startedMs = performance.now();
  }
}

/** As many names as a message is the better for. */
const SHOWN_NAMES = 16;

/** What there is to know of a file but for its data. Its path is for messages: of a deep one it is the end. */
export function describe({ names, stats, at }: Found): TreeEntry {
  const type = typeOf(stats);
  const device = Number(stats.rdev);
  const nanoseconds = ((stats.mtimeNs % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return {
    path: names.slice(-SHOWN_NAMES).join("/"),
    type,
    mode: Number(stats.mode) & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    mtimeS: Number((stats.mtimeNs - nanoseconds) / 1_000_000_000n),
    mtimeNs: Number(nanoseconds),
    xattrs: readXattrs(at),
    size: type === "file" ? Number(stats.size) : 0,
    target: type === "symlink" ? byteString(readlinkSync(at, { encoding: "buffer" })) : "",
    major: (device >> 8) & 0xfff,
    minor: (device & 0xff) | ((device >> 12) & 0xfff00),
  };
}

function typeOf(stats: BigIntStats): FileType {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  if (stats.isSymbolicLink()) return "symlink";
  if (stats.isFIFO()) return "fifo";
  if (stats.isSocket()) return "socket";
  return stats.isCharacterDevice() ? "character-device" : "block-device";
}
