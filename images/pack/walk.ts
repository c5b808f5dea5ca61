import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  read,
  readlinkSync,
  readSync,
} from "node:fs";
import { promisify } from "node:util";
import { SandboxError } from "#core/errors.ts";
import type { FileType } from "#core/sandbox.ts";
import { type ByteString, badInput, byteString, shown, type TreeEntry } from "#core/tar/entry.ts";
import type { Extent } from "#core/tree.ts";
import { readSoon } from "#host/sys/advice.ts";
import { dataExtents } from "#host/sys/holes.ts";
import { readXattrs } from "#host/sys/xattrs.ts";
import { CHUNK_BYTES } from "../erofs/format.ts";
import { Stretch } from "../stretch.ts";
import { Original, type Source } from "./original.ts";
import type { Names } from "./patterns.ts";
import { type FileBytes, type Found, shownPath, type Taken, type Visitor } from "./visit.ts";

const readLater = promisify(read);

/** Reads of more are given to another thread: they may have to wait for the disk. */
const READ_AT_ONCE_BYTES = 256 * 1024;

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** How far the walk looks ahead of visits, so that many files are on their way from the disk at a time. */
const AHEAD = { names: 64, bytes: 16 * CHUNK_BYTES };

/** A directory of a walk, and what its visit made of it. */
interface Place<T> {
  made?: T;
}

/** A tree to walk. */
export interface Walked {
  readonly dir: string;
  /** What it is a copy of, if it is one: numbers of files are the same in both. */
  readonly source?: Source | undefined;
}

/**
 * Visits a directory and everything below it, each directory before what is in it. Nothing is ever reached by more than one name
 * in an open directory, and no link is followed, so that whatever the tree is, or becomes, a walk does not leave it. Takes some
 * descriptors and the names of the directories on the way, at any depth. Rejects with `FailedPrecondition` when directories are
 * moved meanwhile, and `InvalidArgument` when a file is replaced.
 */
export async function walk<T>(tree: Walked, visitor: Visitor<T>, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  using original = tree.source === undefined ? undefined : new Original(tree.source);
  const stretch = new Stretch(signal);
  const waiting: Waiting<T>[] = [];
  let bytes = 0;
  const visitFirst = async () => {
    const first = waiting.shift();
    if (first === undefined) return;
    using next = first;
    bytes -= next.bytesAhead;
    next.place.made = await visitor.visit(next.taken);
    await stretch.pause();
  };
  try {
    for (const found of find<T>({ dir: tree.dir, original, takes: (one) => visitor.takes(one) })) {
      if (found !== undefined) waiting.push(found);
      bytes += found?.bytesAhead ?? 0;
      while (waiting.length > AHEAD.names || bytes > AHEAD.bytes) await visitFirst();
      await stretch.pause();
    }
    while (waiting.length > 0) await visitFirst();
  } finally {
    for (const left of waiting) left[Symbol.dispose]();
  }
}

/** One name that a walk of the system's files came by. */
interface Seen extends Found {
  readonly stats: BigIntStats;
}

/** Where something is found, and its data if that was read. */
interface At {
  readonly at: Buffer;
  readonly data?: Uint8Array | undefined;
}

/** A name that is taken, and waits for its visit. */
class Waiting<T> implements Disposable {
  readonly place: Place<T> = {};
  readonly bytesAhead: number;
  readonly #found: Seen;
  readonly #fd: number | undefined;
  readonly #data: Uint8Array | undefined;
  readonly #entry: TreeEntry;
  readonly #parent: Place<T> | undefined;

  /** Opens a file, and lets its data come, if that is not here. */
  constructor({ names, stats, at, data }: Seen & At, parent: Place<T> | undefined) {
    this.#parent = parent;
    this.#data = data;
    this.#fd = stats.isFile() && data === undefined ? openFile(at) : undefined;
    try {
      const now = this.#fd === undefined ? stats : fstatSync(this.#fd, { bigint: true });
      if (stats.isFile() && !now.isFile())
        throw badInput(`${shown(names.join("/"))} changed while it was packed`, "try again");
      this.#found = { names, stats: now };
      this.#entry = describe(this.#found, at);
      this.bytesAhead = now.blocks === 0n || !now.isFile() ? 0 : Math.min(Number(now.size), CHUNK_BYTES);
      if (this.#fd !== undefined && this.bytesAhead > 0) readSoon(this.#fd, this.bytesAhead);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  get taken(): Taken<T> {
    const file = this.#fd === undefined ? undefined : new OpenFile(this.#fd, this.#found.stats);
    return { ...this.#found, entry: this.#entry, file, data: this.#data, above: this.#parent?.made };
  }

  [Symbol.dispose](): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
  }
}

/** The data of an open file. */
class OpenFile implements FileBytes {
  readonly #fd: number;
  readonly #stats: BigIntStats;

  constructor(fd: number, stats: BigIntStats) {
    this.#fd = fd;
    this.#stats = stats;
  }

  extents(): Iterable<Extent> {
    const size = Number(this.#stats.size);
    return this.#stats.blocks * 512n < this.#stats.size ? dataExtents(this.#fd, size) : [{ offset: 0, size }];
  }

  read(into: Uint8Array, offset: number): number | Promise<number> {
    const { length } = into;
    if (length <= READ_AT_ONCE_BYTES) return readSync(this.#fd, into, 0, length, offset);
    return readLater(this.#fd, into, 0, length, offset).then(({ bytesRead }) => bytesRead);
  }
}

/** What is walked, and which of it is taken. */
interface Finding {
  readonly dir: string;
  /** Goes along. */
  readonly original: Original | undefined;
  takes(found: Found): boolean;
}

/** All that is taken, in the order in which it is visited; undefined for what is not, which takes its time as well. */
function* find<T>(finding: Finding): Generator<Waiting<T> | undefined, void, undefined> {
  const { dir, original } = finding;
  let fd = openDirectory(Buffer.from(dir));
  const way: Level<T>[] = [];
  const names: ByteString[] = [];
  try {
    const found = { names: [], stats: fstatSync(fd, { bigint: true }), at: Buffer.from(`/proc/self/fd/${fd}/.`) };
    const top = new Waiting<T>(found, undefined);
    yield top;
    way.push(yield* readLevel({ fd, names, place: top.place }, finding));
    for (let level = way.at(-1); level !== undefined; level = way.at(-1)) {
      const next = level.directories.pop();
      if (next !== undefined) {
        fd = replace(fd, openDirectory(childOf(fd, next.name)));
        original?.descend(next.name);
        names.push(byteString(next.name));
        way.push(yield* readLevel({ fd, names, place: next.place }, finding));
        continue;
      }
      way.pop();
      names.pop();
      const above = way.at(-1);
      if (above === undefined) break;
      fd = replace(fd, openAbove(fd, above));
      original?.ascend(above.ino);
    }
  } finally {
    closeSync(fd);
  }
}

/** A directory on the way, with those of its directories that were not walked yet. */
interface Level<T> {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly directories: { readonly name: Buffer; readonly place: Place<T> }[];
}

/** An open one. */
interface Directory<T> {
  readonly fd: number;
  readonly names: Names;
  readonly place: Place<T>;
}

/** What is in one directory. */
function* readLevel<T>(
  { fd, names, place }: Directory<T>,
  { original, takes }: Finding,
): Generator<Waiting<T> | undefined, Level<T>> {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  const directories: Level<T>["directories"] = [];
  for (const name of namesIn(fd)) {
    const at = childOf(fd, name);
    const found = { names: [...names, byteString(name)], stats: lstatSync(at, { bigint: true }) };
    if (!takes(found)) {
      yield undefined;
      continue;
    }
    const data = found.stats.isFile() ? original?.read(name, found.stats) : undefined;
    const waiting = new Waiting<T>({ ...found, at, data }, place);
    if (found.stats.isDirectory()) directories.push({ name, place: waiting.place });
    yield waiting;
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

/** Leads to a name by way of an open directory, and is short however deep that lies. Not to be followed. */
function childOf(fd: number, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), name]);
}

function openDirectory(path: Buffer): number {
  return openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

function openFile(path: Buffer): number {
  // O_NONBLOCK: a pipe that took the file's place must not hold us.
  return openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
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

/** What there is to know of a file but for its data. */
function describe({ names, stats }: Seen, at: Buffer): TreeEntry {
  const type = typeOf(stats);
  const device = Number(stats.rdev);
  const nanoseconds = ((stats.mtimeNs % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return {
    path: shownPath(names),
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
