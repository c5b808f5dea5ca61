import { randomBytes } from "node:crypto";
import type { Dirent } from "node:fs";
import { opendir, rename, rmdir, unlink } from "node:fs/promises";
import { hasCode } from "#core/errors.ts";

/** Directories at the top are worked off in portions, so that their list stays small. */
const MAX_DIRECTORIES = 1024;

/**
 * Removes a directory tree that hostile code filled, while nobody writes to it any more. Never follows links, keeps names as
 * bytes, and needs no long path: a directory found deep down is first moved up beside its ancestors, so neither nesting
 * beyond PATH_MAX nor a million entries cost memory or stack. Safe to repeat after a crash; a missing root is success.
 */
export async function removeTree(root: string): Promise<void> {
  const top = Buffer.from(root);
  // Nobody can have put something under a name that did not exist before.
  const prefix = `.${randomBytes(8).toString("hex")}-`;
  let moved = 0;
  for (;;) {
    const directories = await removeFiles(top, MAX_DIRECTORIES, async () => {});
    if (directories === undefined) return;
    if (directories.length === 0) break;
    for (const directory of directories) {
      await removeFiles(directory, 0, (path) => rename(path, child(top, Buffer.from(`${prefix}${moved++}`))));
      await removeEmpty(directory);
    }
  }
  await removeEmpty(top);
}

/**
 * Unlinks what is no directory. Directories are handed to `surplus` from the `keep`th on, the others are returned.
 * `undefined` when there is no such directory.
 */
async function removeFiles(
  path: Buffer,
  keep: number,
  surplus: (path: Buffer) => Promise<void>,
): Promise<readonly Buffer[] | undefined> {
  const kept: Buffer[] = [];
  try {
    for await (const entry of await openRaw(path)) {
      const entryPath = child(path, entry.name);
      if (!entry.isDirectory()) await unlink(entryPath);
      else if (kept.length < keep) kept.push(entryPath);
      else await surplus(entryPath);
    }
    return kept;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** A directory that still has entries (the kernel may skip some while others go) is seen again in the next round. */
async function removeEmpty(path: Buffer): Promise<void> {
  try {
    await rmdir(path);
  } catch (error) {
    if (!hasCode(error, "ENOTEMPTY", "ENOENT")) throw error;
  }
}

function child(parent: Buffer, name: Buffer): Buffer {
  return Buffer.concat([parent, Buffer.from("/"), name]);
}

/** Entries with their names as bytes. */
async function openRaw(path: Buffer): Promise<AsyncIterable<Dirent<Buffer>>> {
  // Node takes the encoding `buffer` here as in readdir; its types do not know that.
  const openBytes: (path: Buffer, options: object) => Promise<unknown> = opendir;
  return (await openBytes(path, { encoding: "buffer", bufferSize: 512 })) as AsyncIterable<Dirent<Buffer>>;
}
