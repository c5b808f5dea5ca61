import { createReadStream } from "node:fs";
import { open, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import { isIndexFull } from "./blobs/chunk-index.ts";
import { sha256 } from "./digest.ts";
import { storeFull } from "./store-full.ts";

/** Runs `action` and turns a full disk, a used-up quota or a file size limit into `StorageFull`. */
export async function typedStorageErrors<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (!hasCode(error, "ENOSPC", "EDQUOT", "EFBIG") && !isIndexFull(error)) throw error;
    throw storeFull(error);
  }
}

/** Writes a new file; `syncFiles` makes it durable. */
export async function writeNew(path: string, content: Uint8Array | string): Promise<void> {
  await writeFile(path, content, { flag: "wx", mode: 0o600 });
}

/** Waits until the files of a directory and their names are on the disk: all at once, since a file system then writes its journal once. */
export async function syncFiles(dir: string): Promise<void> {
  const paths = (await readdir(dir)).map((name) => join(dir, name));
  await Promise.all([...paths, dir].map(sync));
}

/** Waits until the names in a directory are on the disk. */
export async function syncDirectory(path: string): Promise<void> {
  await sync(path);
}

async function sync(path: string): Promise<void> {
  await using file = await open(path, "r");
  await file.sync();
}

/** The size of a file, or its time of change in milliseconds; `undefined` when it is missing. */
export async function statOf(path: string): Promise<{ readonly size: number; readonly mtimeMs: number } | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Lower-case hex of the SHA-256 of a file. */
export async function hashFile(path: string, signal: AbortSignal | undefined): Promise<string> {
  const running = sha256();
  const stream = createReadStream(path, { highWaterMark: 2 ** 20, ...(signal === undefined ? {} : { signal }) });
  for await (const part of stream) running.update(part);
  return running.hex();
}
