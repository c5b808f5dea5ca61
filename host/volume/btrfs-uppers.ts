import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { MNT, unmount } from "#host/sys/mount.ts";
import {
  createSubvolume,
  destroyQuotaGroup,
  destroySubvolume,
  enableQuotas,
  limitSubvolume,
  quotaGroups,
  quotaUsage,
  snapshotSubvolume,
  subvolumeId,
  withDirectory,
} from "./btrfs.ts";
import { checkPlain } from "./plain.ts";
import type { Upper, UpperReading, Volume } from "./volume.ts";

const MIB = 1024 * 1024;

/** The kernel reserves up to a mebibyte of a group for the structures of one operation: below this, the first mkdir fails. */
const MIN_LIMIT_BYTES = 4 * MIB;

/** Dropped groups are looked at again a few at a time, so that no removal pays for all. */
const STALE_PER_REMOVAL = 2;

/** Begins the names of copies that are read; no upper's does. */
const READING = ".reading-";

/** The group of the file system's own top. */
const TOP_GROUP = 5n;

/** Uppers as subvolumes of a mounted btrfs. Switches its quotas on and drops groups that a killed node left. */
export function openBtrfsUppers(path: string): Volume {
  // What is in a sandbox is no business of the users of the host.
  chmodSync(path, 0o700);
  withDirectory(path, enableQuotas);
  const volume = new BtrfsUppers(path);
  volume.sweepReadings();
  volume.sweepGroups();
  return volume;
}

class BtrfsUppers implements Volume {
  readonly kind = "btrfs";
  readonly supportsLimits = true;
  readonly copies = true;
  readonly reason = undefined;
  readonly #path: string;
  /** Groups of dropped subvolumes. Kernels before 6.11 leave them for us; losing this list costs only a sweep at the next start. */
  #stale: bigint[] = [];

  constructor(path: string) {
    this.#path = path;
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
      withDirectory(this.#path, (fd) => destroySubvolume(fd, id));
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

  readUpper(id: string): UpperReading {
    const name = READING + randomBytes(8).toString("hex");
    this.#snapshot(id, name, true);
    const { upperDir } = partsOf(join(this.#path, name));
    const copyTo = (copy: string, limitBytes: number | undefined) => this.#copy(name, copy, limitBytes);
    return { dir: upperDir, copyTo, [Symbol.asyncDispose]: async () => this.#drop(name) };
  }

  openUpper(id: string): Upper {
    return partsOf(join(this.#path, id));
  }

  async removeUpper(id: string): Promise<void> {
    this.#drop(id);
  }

  list(): ReadonlySet<string> {
    return new Set(readdirSync(this.#path).filter((name) => !name.startsWith(READING)));
  }

  usage(id: string): number | undefined {
    try {
      return withDirectory(join(this.#path, id), (fd) => quotaUsage(fd, subvolumeId(fd)));
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Drops copies whose readers died. */
  sweepReadings(): void {
    for (const name of readdirSync(this.#path)) if (name.startsWith(READING)) this.#drop(name);
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

  #copy(from: string, id: string, limitBytes: number | undefined): void {
    this.checkLimit(limitBytes);
    this.#snapshot(from, id, false);
    try {
      const { workDir } = this.openUpper(id);
      // What the overlay of the other keeps for itself, with its mark that a crash makes it worthless: the copy's makes its own.
      rmSync(workDir, { recursive: true });
      mkdirSync(workDir, { mode: 0o755 });
      limit(join(this.#path, id), limitBytes);
    } catch (error) {
      this.#drop(id);
      throw creationError(id, error);
    }
  }

  #snapshot(from: string, name: string, readOnly: boolean): void {
    const root = join(this.#path, from);
    try {
      checkPlain(from, partsOf(root).upperDir);
      withDirectory(root, (source) =>
        withDirectory(this.#path, (fd) => snapshotSubvolume(fd, name, { fd: source, readOnly })),
      );
    } catch (error) {
      if (hasCode(error, "ENOENT")) throw new SandboxError("NotFound", `${from} has no upper`, { cause: error });
      throw error instanceof SandboxError ? error : creationError(name, error);
    }
  }

  #drop(name: string): void {
    try {
      withDirectory(this.#path, (fd) => {
        const group = withDirectory(join(this.#path, name), subvolumeId);
        destroySubvolume(fd, name);
        this.#stale.push(group);
        this.#dropStale(fd);
      });
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

function limit(root: string, limitBytes: number | undefined): void {
  if (limitBytes !== undefined) withDirectory(root, (fd) => limitSubvolume(fd, limitBytes));
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
