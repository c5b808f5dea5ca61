import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
} from "node:fs";
import { hasCode } from "#core/errors.ts";
import type { FileType } from "#core/sandbox.ts";
import type { ByteString } from "#core/tar/entry.ts";
import { badInput, byteString, shown, type TreeEntry } from "#core/tar/entry.ts";
import { readXattrs } from "#host/sys/xattrs.ts";
import type { Feed } from "../layers/layer.ts";

const PIECE_BYTES = 256 * 1024;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** How a directory is read. */
export interface WalkOptions {
  readonly signal?: AbortSignal;
  /** Gives every file to root instead of keeping its owner. */
  readonly ownedByRoot?: boolean;
}

/**
 * Feeds a directory of the host to a builder, itself as the root. Each step opens one name in an open directory and never
 * follows a link, so a tree that changes meanwhile cannot lead out of it. A file that shrinks meanwhile is an error; bytes
 * that it gains are left out.
 */
export async function walkDirectory(directory: string, feed: Feed, options: WalkOptions = {}): Promise<void> {
  const walk = new Walk(feed, options);
  await walk.directory(openDirectory(Buffer.from(directory), directory), "");
}

class Walk {
  readonly #feed: Feed;
  readonly #options: WalkOptions;
  readonly #buffer = Buffer.allocUnsafe(PIECE_BYTES);
  readonly #named = new Map<string, ByteString>();

  constructor(feed: Feed, options: WalkOptions) {
    this.#feed = feed;
    this.#options = options;
  }

  /** Feeds an open directory and all below it, and closes it. Depth is bounded by the length of a path. */
  async directory(fd: number, path: ByteString): Promise<void> {
    try {
      this.#entry(fstatSync(fd, { bigint: true }), path, `/proc/self/fd/${fd}/.`, "");
      const names = readdirSync(`/proc/self/fd/${fd}`, { encoding: "buffer" });
      for (const name of names.sort(Buffer.compare)) {
        this.#options.signal?.throwIfAborted();
        await this.#child(fd, name, path === "" ? byteString(name) : `${path}/${byteString(name)}`);
      }
    } finally {
      closeSync(fd);
    }
  }

  async #child(directory: number, name: Uint8Array, path: ByteString): Promise<void> {
    const at = Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), name]);
    const stats = lstatSync(at, { bigint: true });
    if (stats.isDirectory()) return await this.directory(openDirectory(at, shown(path)), path);
    const id = `${stats.dev}:${stats.ino}`;
    const earlier = stats.nlink > 1n ? this.#named.get(id) : undefined;
    if (earlier !== undefined) return this.#link(stats, path, earlier);
    if (stats.nlink > 1n) this.#named.set(id, path);
    if (stats.isFile()) return await this.#file(at, path);
    const target = stats.isSymbolicLink() ? byteString(readlinkSync(at, { encoding: "buffer" })) : "";
    this.#entry(stats, path, at, target);
  }

  async #file(at: Buffer, path: ByteString): Promise<void> {
    // O_NONBLOCK: a pipe that took the file's place must not hold us.
    const fd = openSync(at, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      const stats = fstatSync(fd, { bigint: true });
      if (!stats.isFile()) throw badInput(`${shown(path)} changed while it was read`);
      this.#entry(stats, path, `/proc/self/fd/${fd}`, "");
      for (let left = Number(stats.size); left > 0; ) {
        const count = readSync(fd, this.#buffer, 0, Math.min(left, PIECE_BYTES), null);
        if (count === 0) throw badInput(`${shown(path)} became shorter while it was read`);
        this.#feed.builder.data(this.#buffer.subarray(0, count));
        left -= count;
        await this.#feed.drain();
      }
    } finally {
      closeSync(fd);
    }
  }

  #link(stats: BigIntStats, path: ByteString, target: ByteString): void {
    this.#feed.builder.entry({ ...this.#describe(stats, path), xattrs: undefined, type: "link", target, size: 0 });
  }

  #entry(stats: BigIntStats, path: ByteString, at: string | Buffer, target: ByteString): void {
    const xattrs = readXattrs(at);
    this.#feed.builder.entry({ ...this.#describe(stats, path), xattrs, target });
  }

  #describe(stats: BigIntStats, path: ByteString): Omit<TreeEntry, "xattrs" | "target"> {
    const type = typeOf(stats);
    const owner =
      this.#options.ownedByRoot === true ? { uid: 0, gid: 0 } : { uid: Number(stats.uid), gid: Number(stats.gid) };
    const device = Number(stats.rdev);
    const seconds = stats.mtimeNs / 1_000_000_000n - (stats.mtimeNs % 1_000_000_000n < 0n ? 1n : 0n);
    return {
      path,
      type,
      mode: Number(stats.mode) & 0o7777,
      ...owner,
      mtimeS: Number(seconds),
      mtimeNs: Number(stats.mtimeNs - seconds * 1_000_000_000n),
      size: type === "file" ? Number(stats.size) : 0,
      major: (device >> 8) & 0xfff,
      minor: (device & 0xff) | ((device >> 12) & 0xfff00),
    };
  }
}

function openDirectory(path: Buffer, name: string): number {
  try {
    return openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (hasCode(error, "ENOENT")) throw badInput(`the directory ${name} does not exist`, undefined, error);
    if (hasCode(error, "ENOTDIR", "ELOOP")) throw badInput(`${name} is not a directory`, undefined, error);
    if (hasCode(error, "EACCES")) throw badInput(`the directory ${name} cannot be read`, undefined, error);
    throw error;
  }
}

function typeOf(stats: BigIntStats): FileType {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  if (stats.isSymbolicLink()) return "symlink";
  if (stats.isFIFO()) return "fifo";
  if (stats.isSocket()) return "socket";
  return stats.isCharacterDevice() ? "character-device" : "block-device";
}
