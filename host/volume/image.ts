import { execFile } from "node:child_process";
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";
import { attachLoop } from "#host/sys/loop.ts";
import { MS, mount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { growFilesystem, withDirectory } from "./btrfs.ts";
import type { VolumeOptions } from "./volume.ts";

const MIB = 1024 * 1024;

/** Below it btrfs has no room for its own structures beside a few sandboxes. */
const MIN_SIZE_MIB = 256;
const FORMAT_ATTEMPTS = 10;

/**
 * Space of a removed upper comes back with the next transaction; the default of 30 s would let a node that churns through
 * sandboxes fill its volume with dead ones.
 */
const MOUNT_OPTIONS = "discard=async,commit=5";

/** Of the host's view: an overlay on it has its own. */
const MOUNT_FLAGS = MS.NOATIME | MS.NOSUID | MS.NODEV;

/**
 * Mounts `<dataDir>/volume.btrfs` at `<runDir>/volume`, making it first when there is none. Gives the mount's path, or the
 * reason in words (`{ reason }`) why this host cannot have one.
 */
export async function mountImage(
  options: VolumeOptions,
): Promise<{ readonly path: string } | { readonly reason: string }> {
  if (options.sizeMiB < MIN_SIZE_MIB) {
    throw new SandboxError("InvalidArgument", `a volume of ${options.sizeMiB} MiB is too small`, {
      hint: `give it ${MIN_SIZE_MIB} MiB or more; it takes only what is written`,
    });
  }
  const path = join(options.runDir, "volume");
  const image = join(options.dataDir, "volume.btrfs");
  if (mountAt(path)?.fstype === "btrfs") return { path };
  if (!/\tbtrfs\n/.test(readFileSync("/proc/filesystems", "utf8")) && !(await loadModule("btrfs"))) {
    return { reason: "this kernel has no btrfs" };
  }
  await mkdir(path, { recursive: true });
  await mkdir(options.dataDir, { recursive: true });
  if (!existsSync(image) && !(await makeImage(image, options.sizeMiB * MIB))) {
    return { reason: "mkfs.btrfs is not installed (package btrfs-progs)" };
  }
  return attachAndMount(image, path, options.sizeMiB * MIB);
}

function attachAndMount(image: string, path: string, sizeBytes: number) {
  const attached = findLoop(image);
  if (attached !== undefined) {
    // Sandboxes of a node before this one hold the file system: a second device for it would be refused.
    mount(attached, path, "btrfs", MOUNT_FLAGS, MOUNT_OPTIONS);
    return { path };
  }
  if (statSync(image).size < sizeBytes) truncateSync(image, sizeBytes);
  try {
    using device = attachLoop(image, { readOnly: false, directIo: true });
    mount(device.path, path, "btrfs", MOUNT_FLAGS, MOUNT_OPTIONS);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENXIO")) return { reason: "this host has no loop devices" };
    throw new SandboxError("Internal", `mounting the volume ${image}`, {
      cause: error,
      hint: "see the kernel log; a damaged volume can be deleted while no sandbox lives",
    });
  }
  withDirectory(path, growFilesystem);
  return { path };
}

/** A file becomes the volume only when it is complete: a node killed in here starts over. */
async function makeImage(image: string, sizeBytes: number): Promise<boolean> {
  const unfinished = `${image}.new`;
  rmSync(unfinished, { force: true });
  writeFileSync(unfinished, "", { mode: 0o600 });
  truncateSync(unfinished, sizeBytes);
  try {
    await format(unfinished);
  } catch (error) {
    rmSync(unfinished);
    if (hasCode(error, "ENOENT")) return false;
    throw new SandboxError("Internal", "making the volume's file system", { cause: error });
  }
  renameSync(unfinished, image);
  return true;
}

/** It looks at all loop devices first, and fails when one of somebody else is detached at that moment. */
async function format(image: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await run("mkfs.btrfs", ["-q", "-f", "-L", "dsec", "-m", "single", "-d", "single", image]);
      return;
    } catch (error) {
      if (attempt === FORMAT_ATTEMPTS || !/cannot check mount status/.test(stderrOf(error))) throw error;
    }
  }
}

function stderrOf(error: unknown): string {
  return error instanceof Error && "stderr" in error ? String(error.stderr) : "";
}

/** The loop device that a file is attached to. */
function findLoop(image: string): string | undefined {
  for (const name of readdirSync("/sys/block")) {
    if (!name.startsWith("loop")) continue;
    try {
      if (readFileSync(`/sys/block/${name}/loop/backing_file`, "utf8").trim() === image) return `/dev/${name}`;
    } catch (error) {
      if (!hasCode(error, "ENOENT", "ENXIO")) throw error;
    }
  }
  return undefined;
}

async function loadModule(name: string): Promise<boolean> {
  try {
    await run("modprobe", ["-q", name]);
    return true;
  } catch {
    // Whatever stopped it, the answer is the same: there is no such file system here.
    return false;
  }
}

const run = promisify(execFile);
