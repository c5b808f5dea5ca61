import { randomBytes } from "node:crypto";
import { closeSync, fstatSync, openSync, readdirSync, statSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import { tryFlock } from "#host/sys/flock.ts";

/** A directory for work in progress. It is locked by this process: one that nobody locks belongs to the dead. */
export interface Scratch extends AsyncDisposable {
  readonly dir: string;
}

/** Makes and locks a new directory below `parent`, which is made too. Disposing removes it, if it was not moved away. */
export async function openScratch(parent: string): Promise<Scratch> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  for (;;) {
    const dir = join(parent, randomBytes(8).toString("hex"));
    await mkdir(dir, { mode: 0o700 });
    const lock = lockDirectory(dir, "exclusive");
    // A sweeper of another process came between the two steps: it removes the directory, we make another.
    if (lock === undefined) continue;
    return {
      dir,
      async [Symbol.asyncDispose]() {
        await rm(dir, { recursive: true, force: true });
        closeSync(lock);
      },
    };
  }
}

/** Removes the directories below `parent` whose makers are gone. Safe while others make theirs. */
export async function sweepScratch(parent: string): Promise<void> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(parent)) {
    const dir = join(parent, name);
    const lock = lockDirectory(dir, "exclusive");
    if (lock === undefined) continue;
    await rm(dir, { recursive: true, force: true });
    closeSync(lock);
  }
}

/** An open descriptor that holds the lock; `undefined` when another's lock excludes it or the directory is gone. */
export function lockDirectory(dir: string, mode: "shared" | "exclusive"): number | undefined {
  let fd: number;
  try {
    fd = openSync(dir, "r");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
  const isOurs = tryFlock(fd, mode) && isStill(dir, fd);
  if (isOurs) return fd;
  closeSync(fd);
  return undefined;
}

function isStill(dir: string, fd: number): boolean {
  try {
    return statSync(dir).ino === fstatSync(fd).ino;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}
