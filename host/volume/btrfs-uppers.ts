import { chmodSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { MNT, unmount } from "#host/sys/mount.ts";
import {
  createSubvolume,
  destroyQuotaGroup,
  destroySubvolume,
  enableQuotas,
  isSnapshot,
  limitSubvolume,
  openDirectory,
  quotaGroup,
  quotaGroups,
  subvolumeId,
  undoSubvolume,
  withDirectory,
} from "./btrfs.ts";
import { Copies, type CopyOptions } from "./copies.ts";
import { checkPlain } from "./plain.ts";
import type { Still, Upper, UpperReading, Volume } from "./volume.ts";

const MIB = 1024 * 1024;

/** The kernel reserves up to a mebibyte of a group for the structures of one operation: below this, the first mkdir fails. */
const MIN_LIMIT_BYTES = 4 * MIB;

/** Dropped groups are looked at again a few at a time, so that no removal pays for all. */
const STALE_PER_REMOVAL = 2;

/** Of copies that are read, and of those that are no uppers yet. What is no upper begins with a dot. */
const COPIES = ".copies";
const SHARED = ".shared";

/** The group of the file system's own top. */
const TOP_GROUP = 5n;

/** Uppers as subvolumes of a mounted btrfs. Switches its quotas on and drops groups that a killed node left. */
export async function openBtrfsUppers(path: string): Promise<Volume> {
  // What is in a sandbox is no business of the users of the host.
  chmodSync(path, 0o700);
  withDirectory(path, enableQuotas);
  const volume = new BtrfsUppers(path);
  await volume.sweepCopies();
  volume.sweepGroups();
  return volume;
}

/** A copy, and a time before it was begun. */
interface TakenCopy {
  readonly copy: string;
  readonly atMs: number;
}

class BtrfsUppers implements Volume {
  readonly kind = "btrfs";
  readonly supportsLimits = true;
  readonly copies = true;
  readonly reason = undefined;
  readonly sharedDir: string;
  readonly #path: string;
  readonly #copies: Copies;
  /** Groups of dropped subvolumes. Kernels before 6.11 leave them for us; losing this list costs only a sweep at the next start. */
  #stale: bigint[] = [];

  constructor(path: string) {
    this.#path = path;
    this.#copies = new Copies(join(path, COPIES));
    this.sharedDir = join(path, SHARED);
  }

  checkLimit(limitBytes: number | undefined): void {
    if (limitBytes === undefined || limitBytes >= MIN_LIMIT_BYTES) return;
    throw new SandboxError("InvalidArgument", `a disk limit of ${limitBytes / MIB} MiB is too small`, {
      hint: `give ${MIN_LIMIT_BYTES / MIB} MiB or more: the file system's own structures count`,
    });
  }

  createUpper(id: string, limitBytes: number | undefined): Upper {
    this.checkLimit(limitBytes);
    try {
      withDirectory(this.#path, (fd) => createSubvolume(fd, id));
    } catch (error) {
      throw creationError(id, error);
    }
    try {
      return fill(join(this.#path, id), limitBytes);
    } catch (error) {
      withDirectory(this.#path, (fd) => undoSubvolume(fd, id));
      throw creationError(id, error);
    }
  }

  renameUpper(from: string, id: string, limitBytes: number | undefined): Upper {
    this.checkLimit(limitBytes);
    const root = join(this.#path, id);
    try {
      renameSync(join(this.#path, from), root);
      limit(root, limitBytes);
    } catch (error) {
      throw creationError(id, error);
    }
    return partsOf(root);
  }

  async readUpper(id: string, still?: Still): Promise<UpperReading> {
    const root = join(this.#path, id);
    checkCopyable(id, root);
    let atMs = 0;
    const copy = (taken?: () => void) => {
      atMs = Date.now();
      return this.#copy(id, root, { readOnly: true, taken });
    };
    const first = await copy();
    if (still === undefined) return this.#reading(root, { copy: first, atMs });
    // The first has brought to the disk what nobody has to be held still for; the second is the moment's.
    let second: string;
    try {
      second = await this.#whileHeld(still, copy);
    } catch (error) {
      await this.#drop(first);
      throw error;
    }
    return this.#reading(root, { copy: second, atMs }, this.#drop(first));
  }

  /** `before`: what else must be over when it is let go. */
  #reading(root: string, { copy, atMs }: TakenCopy, before: Promise<void> = Promise.resolve()): UpperReading {
    before.catch(() => undefined);
    const copyTo = (to: string, limitBytes: number | undefined) => this.#copyTo(copy, to, limitBytes);
    const letGo = async () => {
      await this.#drop(copy);
      await before;
    };
    const source = { dir: partsOf(root).upperDir, atMs };
    return { dir: partsOf(copy).upperDir, source, copyTo, [Symbol.asyncDispose]: letGo };
  }

  openUpper(id: string): Upper {
    return partsOf(join(this.#path, id));
  }

  async removeUpper(id: string): Promise<void> {
    await this.#drop(join(this.#path, id));
  }

  list(): ReadonlySet<string> {
    return new Set(readdirSync(this.#path).filter((name) => !name.startsWith(".")));
  }

  usage(id: string): number | undefined {
    try {
      return withDirectory(join(this.#path, id), usageOf);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Drops copies whose makers died. */
  async sweepCopies(): Promise<void> {
    for (const copy of this.#copies.list()) await this.#drop(copy);
  }

  /** Drops groups whose subvolume is gone. */
  sweepGroups(): void {
    withDirectory(this.#path, (fd) => {
      const live = new Set([TOP_GROUP]);
      for (const id of this.list()) live.add(withDirectory(join(this.#path, id), subvolumeId));
      for (const group of quotaGroups(fd).keys()) if (!live.has(group)) this.#stale.push(group);
      this.#stale = this.#stale.filter((group) => !destroyQuotaGroup(fd, group));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.list().size > 0) return;
    try {
      unmount(this.#path);
    } catch (error) {
      if (!hasCode(error, "EBUSY")) throw error;
      // Somebody looks into it: it goes when they do.
      unmount(this.#path, MNT.DETACH);
    }
  }

  async #whileHeld<T>(still: Still, action: (letGo: () => void) => Promise<T>): Promise<T> {
    let isHeld = true;
    const letGo = () => {
      if (!isHeld) return;
      isHeld = false;
      still.letGo();
    };
    await still.hold();
    try {
      return await action(letGo);
    } finally {
      letGo();
    }
  }

  async #copyTo(from: string, id: string, limitBytes: number | undefined): Promise<void> {
    this.checkLimit(limitBytes);
    const copy = await this.#copy(id, from, { readOnly: false });
    try {
      const { workDir } = partsOf(copy);
      // What the overlay of the other keeps for itself, with its mark that a crash makes it worthless: the copy's makes its own.
      rmSync(workDir, { recursive: true });
      mkdirSync(workDir, { mode: 0o755 });
      // Full quotas count what it shares, which may be more than its limit already.
      withDirectory(copy, (fd) => limitSubvolume(fd, limitBytes, "own"));
      renameSync(copy, join(this.#path, id));
    } catch (error) {
      await this.#drop(copy);
      throw creationError(id, error);
    }
  }

  async #copy(id: string, source: string, options: CopyOptions): Promise<string> {
    try {
      return await this.#copies.make(source, options);
    } catch (error) {
      if (hasCode(error, "ENOENT")) throw noUpper(id, error);
      throw creationError(id, error);
    }
  }

  async #drop(root: string): Promise<void> {
    try {
      using parent = openDirectory(dirname(root));
      const group = withDirectory(root, subvolumeId);
      await destroySubvolume(parent.fd, basename(root));
      this.#stale.push(group);
      this.#dropStale(parent.fd);
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
    }
  }

  #dropStale(fd: number): void {
    for (let n = 0; n < STALE_PER_REMOVAL; n += 1) {
      const oldest = this.#stale.shift();
      if (oldest === undefined) return;
      // One whose data a copy shares stays in use as long as that: it must not stand before the others.
      if (!destroyQuotaGroup(fd, oldest)) this.#stale.push(oldest);
    }
  }
}

function fill(root: string, limitBytes: number | undefined): Upper {
  const upper = partsOf(root);
  for (const dir of [upper.upperDir, upper.workDir]) mkdirSync(dir, { mode: 0o755 });
  limit(root, limitBytes);
  return upper;
}

function partsOf(root: string): Upper {
  return { upperDir: join(root, "upper"), workDir: join(root, "work") };
}

function checkCopyable(id: string, root: string): void {
  try {
    checkPlain(id, partsOf(root).upperDir);
  } catch (error) {
    throw hasCode(error, "ENOENT") ? noUpper(id, error) : error;
  }
}

function noUpper(id: string, cause: unknown): SandboxError {
  return new SandboxError("NotFound", `${id} has no upper`, { cause });
}

/** Of one that is new: without a limit it has none. */
function limit(root: string, limitBytes: number | undefined): void {
  if (limitBytes !== undefined) withDirectory(root, (fd) => limitSubvolume(fd, limitBytes, "all"));
}

function creationError(id: string, error: unknown): SandboxError {
  if (hasCode(error, "EEXIST", "ENOTEMPTY"))
    return new SandboxError("AlreadyExists", `${id} has an upper already`, { cause: error });
  if (hasCode(error, "ENOSPC", "EDQUOT")) {
    return new SandboxError("StorageFull", "the volume of the node is full", {
      cause: error,
      hint: "destroy sandboxes, or enlarge the volume",
    });
  }
  return new SandboxError("Internal", `making the upper of ${id}`, { cause: error });
}

/** A copy counts as what it has itself, as its limit does. */
function usageOf(fd: number): number | undefined {
  const group = quotaGroup(fd, subvolumeId(fd));
  return isSnapshot(fd) ? group?.ownBytes : group?.allBytes;
}
