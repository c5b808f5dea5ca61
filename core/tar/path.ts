import { type ByteString, badInput, shown } from "#core/tar/entry.ts";

/** PATH_MAX and NAME_MAX of Linux. */
const MAX_PATH_BYTES = 4096;
export const MAX_NAME_BYTES = 255;

/**
 * The components of a path beneath the root of a tree. A leading `/` means that root, as `tar` has it. Refuses `..`
 * wherever it stands, NUL, and what Linux could not hold. The root itself is the empty list.
 */
export function components(path: ByteString): ByteString[] {
  if (path.length > MAX_PATH_BYTES) throw badInput(`the path ${shown(path)} is longer than ${MAX_PATH_BYTES} bytes`);
  if (path.includes("\0")) throw badInput(`the path ${shown(path)} contains a NUL byte`);
  const parts: ByteString[] = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") throw badInput(`the path ${shown(path)} leads out of the tree`, "make the archive without ..");
    if (part.length > MAX_NAME_BYTES)
      throw badInput(`the path ${shown(path)} has a name of more than ${MAX_NAME_BYTES} bytes`);
    parts.push(part);
  }
  return parts;
}
