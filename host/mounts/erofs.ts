import { closeSync, openSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { attachLoop } from "#host/sys/loop.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { type MountEntry, readMounts } from "#host/sys/mountinfo.ts";

/** Image files and where their tree is to appear. */
export interface ErofsMount {
  readonly metadata: string;
  /** Files with the data, in the order in which the metadata names them. */
  readonly devices: readonly string[];
  /** An existing directory. */
  readonly target: string;
}

/** An overlay has flags of its own: in a sandbox setuid programs of a layer work. */
const FLAGS = MS.RDONLY | MS.NODEV | MS.NOSUID;

/** Errors by which a kernel says that it does not mount this file system from plain files. */
const NEEDS_BLOCK_DEVICE = ["ENOTBLK"];

/**
 * Mounts an EROFS image with its data devices, read-only: straight from the files where the kernel can (6.12 and later), else
 * through loop devices that go away with the mount. Throws a `SystemError`; `ENODEV` means a kernel without EROFS.
 */
export function mountErofs(image: ErofsMount, mode: "files-first" | "files" | "loop" = "files-first"): void {
  try {
    if (mode === "loop") mountThroughLoop(image);
    else mountFiles(image);
  } catch (error) {
    if (mode === "files" || !hasCode(error, ...NEEDS_BLOCK_DEVICE)) throw error;
    mountThroughLoop(image);
  }
}

/** Unmounts what is at `target`; success when nothing is. Lazily: open files of it go on working. */
export function unmountErofs(target: string): void {
  try {
    unmount(target, MNT.DETACH);
  } catch (error) {
    if (!hasCode(error, "EINVAL", "ENOENT")) throw error;
  }
}

/** EROFS mounts directly below a directory. */
export function erofsMounts(directory: string): readonly MountEntry[] {
  return readMounts().filter(({ fstype, target }) => fstype === "erofs" && target.startsWith(`${directory}/`));
}

function mountFiles({ metadata, devices, target }: ErofsMount): void {
  // Options are separated by commas, which a path may hold: the kernel is given open files instead.
  const fds: number[] = [];
  try {
    for (const device of devices) fds.push(openSync(device, "r"));
    mount(metadata, target, "erofs", FLAGS, options(fds.map((fd) => `/proc/self/fd/${fd}`)));
  } finally {
    for (const fd of fds) closeSync(fd);
  }
}

function mountThroughLoop({ metadata, devices, target }: ErofsMount): void {
  using opened = new DisposableStack();
  const attach = (file: string) => opened.use(attachLoop(file, { readOnly: true, directIo: false })).path;
  mount(attach(metadata), target, "erofs", FLAGS, options(devices.map(attach)));
}

function options(devices: readonly string[]): string {
  return devices.map((device) => `device=${device}`).join(",");
}
