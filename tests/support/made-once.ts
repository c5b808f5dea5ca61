import { createHash } from "node:crypto";
import {
  closeSync,
  createReadStream,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode } from "#core/errors.ts";
import { tryFlock } from "#host/sys/flock.ts";

const LOOK_MS = 100;

/**
 * A file that costs minutes to make, and that many test files need: made at `path` by the first who asks, whoever else asks meanwhile
 * waits. One that was damaged, or whose maker died, is made again. `make` writes to the path that it is given.
 */
export async function madeOnce(path: string, make: (path: string) => Promise<void>): Promise<string> {
  mkdirSync(dirname(path), { recursive: true });
  const lock = openSync(`${path}.lock`, "w");
  try {
    // The lock goes with the process.
    while (!tryFlock(lock, "exclusive")) await delay(LOOK_MS);
    if (await isWhole(path)) return path;
    // The end of the name stays: programs choose a format by it.
    const made = join(dirname(path), `new-${basename(path)}`);
    for (const left of [path, made]) rmSync(left, { recursive: true, force: true });
    await make(made);
    writeFileSync(`${path}.sha256`, await digestOf(made));
    renameSync(made, path);
    return path;
  } finally {
    closeSync(lock);
  }
}

async function isWhole(path: string): Promise<boolean> {
  try {
    return readFileSync(`${path}.sha256`, "utf8") === (await digestOf(path));
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}
