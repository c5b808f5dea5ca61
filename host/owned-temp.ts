import { closeSync, constants, existsSync, fstatSync, mkdtempSync, openSync, readdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import { tryFlock } from "#host/sys/flock.ts";

/** A directory of this process. Disposing removes it; should the process die first, a sweep does. */
export interface OwnedTemp extends AsyncDisposable {
  readonly path: string;
}

/** Makes `<parent>/<prefix><random>`, mode 0700, and holds its lock, which goes with this process however that ends. */
export function makeOwnedTemp(parent: string, prefix: string): OwnedTemp {
  for (;;) {
    const path = mkdtempSync(join(parent, prefix));
    const fd = openSync(path, "r");
    // A sweep may have come between: then it has the lock, or has removed the directory already.
    if (tryFlock(fd, "exclusive") && existsSync(path)) {
      return {
        path,
        async [Symbol.asyncDispose]() {
          await rm(path, { recursive: true, force: true });
          closeSync(fd);
        },
      };
    }
    closeSync(fd);
  }
}

/** Removes the directories of this prefix whose makers are dead. What cannot be removed now is left to the next sweep. */
export async function sweepOwnedTemps(parent: string, prefix: string): Promise<void> {
  for (const name of readdirSync(parent)) {
    if (name.startsWith(prefix)) await sweep(join(parent, name));
  }
}

async function sweep(path: string): Promise<void> {
  const fd = openOwn(path);
  if (fd === undefined) return;
  try {
    if (tryFlock(fd, "exclusive")) await removeDying(path);
  } finally {
    closeSync(fd);
  }
}

/** Processes that the dead maker started may write for a moment still. */
async function removeDying(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true, maxRetries: 3 });
  } catch (error) {
    if (!hasCode(error, "ENOTEMPTY", "EBUSY")) throw error;
  }
}

/** `undefined` for what is gone, is no directory, or is another user's: the parent may be open to everybody. */
function openOwn(path: string): number | undefined {
  try {
    const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    if (fstatSync(fd).uid === process.geteuid?.()) return fd;
    closeSync(fd);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENOTDIR", "ELOOP", "EACCES")) throw error;
  }
  return undefined;
}
