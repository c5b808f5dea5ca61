import { execFile } from "node:child_process";
import { closeSync, ftruncateSync, openSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { Upper, Volume } from "#host/volume/volume.ts";

const MIB = 1024 * 1024;
/** Of a sandbox without a limit: sparse, so it costs what is written; the volume bounds all together. */
const UNLIMITED_MIB = 16 * 1024;
/** The file system's own structures come on top of what a sandbox may write: its journal, a part of all, and its inodes. */
const JOURNAL_MIB = 4;
const STRUCTURES_MIB = 4;
const STRUCTURES_PART = 0.02;
/** As many inodes as files of one block, and on small disks as many as of half a KiB: what is limited is space. Those that are not used take none. */
const INODES_PER_MIB = 256;
const SMALL_INODES_PER_MIB = 2048;
const ENOUGH_INODES = 131_072;
const INODE_BYTES = 256;
/** Below it blocks are of a KiB, and groups half as large as else, so that all of the inodes have a place in one. */
const SMALL_MIB = 512;
const SMALL_GROUP_BLOCKS = 4096;

/** A disk's file system, its structures included. */
interface DiskShape {
  readonly bytes: number;
  readonly words: readonly string[];
}

/** Of a sandbox's disk. */
export function diskShape({ resources }: Pick<SandboxSpec, "resources">): DiskShape {
  const diskMiB = resources.diskMiB ?? UNLIMITED_MIB;
  const inodes = Math.max(diskMiB * INODES_PER_MIB, Math.min(ENOUGH_INODES, diskMiB * SMALL_INODES_PER_MIB));
  const inodesMiB = (inodes * INODE_BYTES) / MIB;
  const bytes = Math.ceil(diskMiB * (1 + STRUCTURES_PART) + JOURNAL_MIB + STRUCTURES_MIB + inodesMiB) * MIB;
  const isSmall = bytes < SMALL_MIB * MIB;
  const groups = isSmall ? ["-b", "1024", "-g", String(SMALL_GROUP_BLOCKS)] : ["-b", "4096"];
  return { bytes, words: [...groups, "-I", String(INODE_BYTES), "-N", String(Math.ceil(inodes))] };
}

/** Gives a sandbox a disk that begins as another one is, and shares its data where the volume can. What it throws for leaves nothing. */
export async function copyDisk(volume: Volume, spec: SandboxSpec, from: string): Promise<string> {
  return await madeDisk(volume, spec, (path) => copyFileSparse(from, path));
}

/** The disk of a sandbox's machine. */
export function diskPath(upper: Pick<Upper, "upperDir">): string {
  return diskIn(upper.upperDir);
}

/** The disk of what was saved in a directory. */
export function diskIn(dir: string): string {
  return join(dir, "disk");
}

/** Makes an empty disk for a sandbox. What it throws for leaves nothing. `FailedPrecondition` without mke2fs, `StorageFull`. */
export async function makeDisk(volume: Volume, spec: SandboxSpec): Promise<string> {
  return await madeDisk(volume, spec, (path) => formatDisk(path, spec));
}

/** Makes an empty disk in a file of this name. */
export async function formatDisk(path: string, spec: SandboxSpec): Promise<void> {
  const { bytes, words } = diskShape(spec);
  const fd = openSync(path, "wx", 0o600);
  ftruncateSync(fd, bytes);
  closeSync(fd);
  await format(path, words);
}

async function madeDisk(volume: Volume, spec: SandboxSpec, make: (path: string) => Promise<void>): Promise<string> {
  const path = diskPath(volume.createUpper(spec.id, undefined));
  try {
    await make(path);
    return path;
  } catch (error) {
    await volume.removeUpper(spec.id);
    throw error;
  }
}

/** Tables of inodes are written by the guest as it comes to need them. */
async function format(path: string, shape: readonly string[]): Promise<void> {
  const features = ["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-m", "0", "-J", `size=${JOURNAL_MIB}`];
  try {
    await promisify(execFile)("mke2fs", ["-q", "-F", "-t", "ext4", ...features, ...shape, path]);
  } catch (error) {
    if (/No space left/.test(String(error)))
      throw roomError(Object.assign(new Error("mke2fs"), { code: "ENOSPC", cause: error }));
    if (!hasCode(error, "ENOENT")) throw error;
    throw new SandboxError("FailedPrecondition", "disks of machines need mke2fs, which this host lacks", {
      cause: error,
      hint: "apt-get install e2fsprogs",
    });
  }
}
