import { closeSync, openSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { attachLoop } from "#host/sys/loop.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { type MountEntry, readMounts } from "#host/sys/mountinfo.ts";

/** Two image files and where their tree is to appear. */
export interface ErofsMount {
  readonly metadata: string;
  readonly data: string;
  /** An existing directory. */
  readonly target: string;
}

/** An overlay has flags of its own: in a sandbox setuid programs of a layer work. */
const FLAGS = MS.RDONLY | MS.NODEV | MS.NOSUID;

/** Errors by which a kernel says that it does not mount this file system from plain files. */
const NEEDS_BLOCK_DEVICE = ["ENOTBLK"];

/**
 * Mounts an EROFS image with its data device, read-only: straight from the files where the kernel can (6.12 and later), else
 * through two loop devices that go away with the mount. Throws a `SystemError`; `ENODEV` means a kernel without EROFS.
 */
export function mountErofs(image: ErofsMount, mode: "files-first" | "loop" = "files-first"): void {
  try {
    if (mode === "files-first") mountFiles(image);
    else mountThroughLoop(image);
  } catch (error) {
    if (!hasCode(error, ...NEEDS_BLOCK_DEVICE)) throw error;
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

function mountFiles({ metadata, data, target }: ErofsMount): void {
  // Options are separated by commas, which a path may hold: the kernel is given an open file instead.
  const fd = openSync(data, "r");
  try {
    mount(metadata, target, "erofs", FLAGS, `device=/proc/self/fd/${fd}`);
  } finally {
    closeSync(fd);
  }
}

function mountThroughLoop({ metadata, data, target }: ErofsMount): void {
  using metadataDevice = attachLoop(metadata, { readOnly: true, directIo: false });
  using dataDevice = attachLoop(data, { readOnly: true, directIo: false });
  mount(metadataDevice.path, target, "erofs", FLAGS, `device=${dataDevice.path}`);
}
