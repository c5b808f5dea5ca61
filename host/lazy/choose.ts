import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import { markFile, openGroup } from "./fanotify.ts";
import type { Mechanism } from "./requests.ts";

/** Errors by which a kernel or a file system says that it has no events before data is read. */
const NO_EVENTS = ["EINVAL", "ENOSYS", "EOPNOTSUPP", "EPERM"];

/** The better of the mechanisms that work for files of this directory: the kernel asks nothing about files that are complete. */
export function chooseMechanism(directory: string): Mechanism {
  const scratch = mkdtempSync(join(directory, ".events-"));
  try {
    const file = join(scratch, "file");
    closeSync(openSync(file, "wx"));
    const group = openGroup();
    try {
      markFile(group, file);
    } finally {
      closeSync(group);
    }
    return "fanotify";
  } catch (error) {
    if (hasCode(error, ...NO_EVENTS)) return "fuse";
    throw error;
  } finally {
    rmSync(scratch, { recursive: true });
  }
}
