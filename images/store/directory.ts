import { randomBytes } from "node:crypto";
import {
  type FileHandle,
  mkdir,
  open,
  opendir,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  statfs,
  unlink,
} from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { type Clock, systemClock } from "#core/clock.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import { checkedContent } from "./checked-content.ts";
import {
  type ByteRange,
  checkKey,
  damagedObject,
  isObjectKey,
  noObject,
  type ObjectContent,
  type ObjectEntry,
  type ObjectInfo,
  type ObjectStore,
  objectStoreFull,
  STALL_MS,
  storeUnavailable,
} from "./object-store.ts";
import { Progress } from "./progress.ts";

/** Says that a directory is a store, so that one whose file system is not mounted is not taken for an empty one. */
const MARKER = "dsec-store.json";
/** Objects on their way in. A leading dot: no key has one. */
const INCOMING = ".incoming";
/** What a dead node left on its way in goes after so long without a write. */
const ABANDONED_MS = 24 * 60 * 60_000;
const READ_BYTES = 2 ** 20;
/** ext, XFS, btrfs, tmpfs, overlay: one kernel sees all that happens. */
const LOCAL_FILE_SYSTEMS: ReadonlySet<number> = new Set([0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630]);
/** Clients of a network file system remember listings for a minute each (NFS: acdirmax), ours and the other's. */
const SETTLING_MS = 150_000;
/** Attempts to rename an object to where others remove the last of its directory. */
const MOVES = 8;

/** How a directory is used. */
export interface DirectoryOptions {
  readonly clock?: Clock;
  readonly stallMs?: number;
}

/**
 * A store in a directory, which may be a shared file system that many nodes have mounted: objects are files, each put beside its place
 * and renamed into it. No locks. The directory must exist; the first call makes an empty one a store.
 */
export function directoryStore(root: string, options: DirectoryOptions = {}): ObjectStore {
  return new DirectoryObjects(root, options);
}

class DirectoryObjects implements ObjectStore {
  readonly name: string;
  readonly #root: string;
  readonly #clock: Clock;
  readonly #stallMs: number;
  #isReady = false;

  constructor(root: string, { clock = systemClock, stallMs = STALL_MS }: DirectoryOptions) {
    this.name = `directory ${root}`;
    this.#root = root;
    this.#clock = clock;
    this.#stallMs = stallMs;
  }

  async *get(key: string, range: ByteRange | undefined, signal: AbortSignal): AsyncIterable<Uint8Array> {
    using progress = this.#progress(signal);
    const doing = `reading ${key}`;
    const file = await this.#find(doing, progress, () => open(this.path(key), "r"));
    if (file === undefined) throw noObject(key);
    try {
      const { size } = await this.#run(doing, progress, () => file.stat());
      const { offset, lengthBytes } = range ?? { offset: 0, lengthBytes: size };
      if (offset + lengthBytes > size) throw damagedObject(key, `it ends after ${size} bytes`);
      for (let done = 0; done < lengthBytes; ) {
        const buffer = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, lengthBytes - done));
        const { bytesRead } = await this.#run(doing, progress, () =>
          file.read(buffer, 0, buffer.length, offset + done),
        );
        if (bytesRead === 0) throw damagedObject(key, `it ends after ${offset + done} bytes`);
        done += bytesRead;
        yield buffer.subarray(0, bytesRead);
      }
    } finally {
      closeLater(file);
    }
  }

  async put(key: string, content: ObjectContent, signal: AbortSignal): Promise<void> {
    const target = this.path(key);
    const doing = `writing ${key}`;
    using progress = this.#progress(signal);
    await this.#becomeStore(progress);
    const incoming = join(this.#root, INCOMING, randomBytes(12).toString("hex"));
    try {
      const file = await this.#run(doing, progress, () => open(incoming, "wx", 0o644));
      try {
        for await (const piece of checkedContent(key, content)) {
          await this.#run(doing, progress, () => file.writeFile(piece));
        }
        await this.#run(doing, progress, () => file.sync());
      } finally {
        closeLater(file);
      }
      await this.#run(doing, progress, () => moveInto(incoming, this.#root, target));
    } catch (error) {
      await this.#discard(incoming);
      throw error;
    }
  }

  async head(key: string, signal: AbortSignal): Promise<ObjectInfo | undefined> {
    using progress = this.#progress(signal);
    const found = await this.#find(`looking for ${key}`, progress, () => stat(this.path(key)));
    return found === undefined ? undefined : { sizeBytes: found.size, modifiedAtMs: found.mtimeMs };
  }

  async *list(prefix: string, signal: AbortSignal): AsyncIterable<ObjectEntry> {
    using progress = this.#progress(signal);
    const doing = `listing ${prefix}`;
    // Only the directory that the prefix names can hold such keys; what its last part begins is told apart below.
    const pending = [prefix.slice(0, prefix.lastIndexOf("/") + 1)];
    for (let above = pending.pop(); above !== undefined; above = pending.pop()) {
      const at = join(this.#root, above);
      const dir = await this.#find(doing, progress, () => opendir(at));
      if (dir === undefined) continue;
      try {
        for (;;) {
          const entry = await this.#run(doing, progress, () => dir.read());
          if (entry === null) break;
          const key = above + entry.name;
          if (!isObjectKey(key) || !key.startsWith(prefix) || key === MARKER) continue;
          if (entry.isDirectory()) pending.push(`${key}/`);
          const found = await this.#find(doing, progress, () => stat(join(at, entry.name)));
          if (found?.isFile()) yield { key, sizeBytes: found.size, modifiedAtMs: found.mtimeMs };
        }
      } finally {
        dir.close().catch(() => undefined);
      }
    }
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    using progress = this.#progress(signal);
    const path = this.path(key);
    await this.#find(`removing ${key}`, progress, () => unlink(path));
    for (let dir = dirname(path); dir.length > this.#root.length; dir = dirname(dir)) {
      if (!(await this.#run(`removing ${key}`, progress, () => removeEmpty(dir)))) return;
    }
  }

  path(key: string): string {
    checkKey(key);
    return join(this.#root, key);
  }

  async settlingMs(signal: AbortSignal): Promise<number> {
    using progress = this.#progress(signal);
    const { type } = await this.#run("looking at its file system", progress, () => statfs(this.#root));
    return LOCAL_FILE_SYSTEMS.has(type) ? 0 : SETTLING_MS;
  }

  async probe(signal: AbortSignal): Promise<void> {
    using progress = this.#progress(signal);
    await this.#becomeStore(progress);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Holds nothing open.
  }

  /** Makes an empty directory a store, once, and sweeps what dead nodes left on its way in. */
  async #becomeStore(progress: Progress): Promise<void> {
    const doing = "opening it";
    const names = await this.#run(doing, progress, () => readdir(this.#root));
    if (names.includes(MARKER) && this.#isReady) return;
    // A directory that was a store a moment ago and is empty now lost its file system.
    if (this.#isReady) throw this.#notThere();
    const foreign = names.find((name) => ![INCOMING, "lost+found"].includes(name));
    if (!names.includes(MARKER) && foreign !== undefined) throw this.#foreign(foreign);
    await this.#run(doing, progress, () => makeBeneath(this.#root, INCOMING));
    await this.#run(doing, progress, () => this.#sweep());
    if (!names.includes(MARKER)) await this.#run(doing, progress, () => writeMarker(join(this.#root, MARKER)));
    this.#isReady = true;
  }

  /** The caller may have given up: what is half there goes all the same, if the store lets it. */
  async #discard(incoming: string): Promise<void> {
    using progress = this.#progress(new AbortController().signal);
    await progress.of(rm(incoming, { force: true })).catch(() => undefined);
  }

  async #sweep(): Promise<void> {
    const incoming = join(this.#root, INCOMING);
    const abandonedAtMs = this.#clock.now() - ABANDONED_MS;
    for (const name of await readdir(incoming)) {
      const file = join(incoming, name);
      const found = await stat(file).catch(undefinedIfMissing);
      if (found !== undefined && found.mtimeMs < abandonedAtMs) await rm(file, { force: true });
    }
  }

  /** As `#run`, and `undefined` when it is not there but its store is. */
  async #find<T>(doing: string, progress: Progress, work: () => Promise<T>): Promise<T | undefined> {
    const found = await this.#run(doing, progress, () => work().catch(undefinedIfMissing));
    if (found !== undefined) return found;
    await this.#becomeStore(progress);
    return undefined;
  }

  async #run<T>(doing: string, progress: Progress, work: () => Promise<T>): Promise<T> {
    try {
      return await progress.of(work());
    } catch (error) {
      throw progress.isStalled ? storeUnavailable(this.name, doing, error) : this.#typed(doing, error);
    }
  }

  #typed(doing: string, error: unknown): unknown {
    if (hasCode(error, "ENOSPC", "EDQUOT", "EFBIG")) return objectStoreFull(this.name, error);
    if (hasCode(error, "ENOENT", "ENOTDIR")) return this.#notThere(error);
    if (hasCode(error, "EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH")) {
      return storeUnavailable(this.name, doing, error);
    }
    if (hasCode(error, "EACCES", "EPERM", "EROFS")) {
      return new SandboxError("PermissionDenied", `${this.name} refuses ${doing}`, {
        cause: error,
        hint: "let root of this machine read and write the directory",
      });
    }
    return error;
  }

  #notThere(cause?: unknown): SandboxError {
    return new SandboxError("Unavailable", `${this.name} is not there, or not the store that it was`, {
      cause,
      hint: "mount its file system; a new store begins as an empty directory",
    });
  }

  #foreign(name: string): SandboxError {
    return new SandboxError("FailedPrecondition", `${this.name} holds other things than a store, as ${name}`, {
      hint: "name an empty directory, or one that was a store before",
    });
  }

  #progress(signal: AbortSignal): Progress {
    return new Progress(this.#clock, this.#stallMs, signal);
  }
}

/** Makes a directory and those above it, but not the root: one that is not there lost its file system. */
async function makeBeneath(root: string, dir: string): Promise<void> {
  let path = root;
  for (const name of dir.split("/")) {
    path = join(path, name);
    await mkdir(path).catch((error: unknown) => {
      if (!hasCode(error, "EEXIST")) throw error;
    });
  }
}

/** Renames `incoming` to its place; the directories there are made, however often removals take them away again. */
async function moveInto(incoming: string, root: string, target: string): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      await makeBeneath(root, relative(root, dirname(target)));
      await rename(incoming, target);
      break;
    } catch (error) {
      if (attempt === MOVES || !hasCode(error, "ENOENT")) throw error;
    }
  }
  await using directory = await open(dirname(target), "r");
  await directory.sync();
}

/** False when something is in the directory. */
async function removeEmpty(dir: string): Promise<boolean> {
  try {
    await rmdir(dir);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    if (hasCode(error, "ENOTEMPTY", "EEXIST")) return false;
    throw error;
  }
}

async function writeMarker(path: string): Promise<void> {
  await using file = await open(path, "w", 0o644);
  await file.writeFile(`${JSON.stringify({ version: 1 })}\n`);
  await file.sync();
}

/** A file system that hangs may hang at this, too: nobody waits for it. */
function closeLater(file: FileHandle): void {
  file.close().catch(() => undefined);
}

function undefinedIfMissing(error: unknown): undefined {
  if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
}
