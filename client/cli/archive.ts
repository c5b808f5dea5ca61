import { closeSync, createReadStream, openSync, readSync, statSync } from "node:fs";
import { join } from "node:path";
import { CliError, hasCode } from "./cli-error.ts";
import { tarDirectory } from "./tar-directory.ts";

/** The bytes of an import and what they are. */
export interface Archive {
  readonly bytes: AsyncIterable<Uint8Array>;
  readonly format: "tar" | "oci" | "deb";
}

const BLOCK = 512;
/** Begins every Debian package. */
const DEB_MAGIC = "!<arch>\ndebian-binary";
/** Entries of a tar that are looked at to tell an image from a file tree: an image has few. */
const MAX_LOOKED_AT = 4_096;

/**
 * A directory or file of this machine as an import: OCI layouts and archives are recognised by their own index file, Debian
 * packages by their first member.
 */
export function archiveOf(source: string, format: "tar" | "oci" | "deb" | undefined): Archive {
  const stats = reachable(source, () => statSync(source));
  if (stats.isDirectory()) {
    return { bytes: tarDirectory(source), format: format ?? (exists(join(source, "oci-layout")) ? "oci" : "tar") };
  }
  return { bytes: createReadStream(source), format: format ?? reachable(source, () => formatOf(source)) };
}

/** The bytes of a file of this machine. Throws `CliError` when it cannot be read. */
export function fileBytes(path: string): AsyncIterable<Uint8Array> {
  const isFile = reachable(path, () => statSync(path).isFile());
  if (isFile) return createReadStream(path);
  throw new CliError("InvalidArgument", `${path} is no file`, { hint: "check the path" });
}

/** Hops from header to header of a plain tar; a compressed one counts as a file tree. */
function formatOf(file: string): "tar" | "oci" | "deb" {
  const fd = openSync(file, "r");
  try {
    const header = Buffer.alloc(BLOCK);
    for (let at = 0, seen = 0; seen < MAX_LOOKED_AT; seen++) {
      const bytes = readSync(fd, header, 0, BLOCK, at);
      if (at === 0 && header.toString("latin1", 0, DEB_MAGIC.length) === DEB_MAGIC) return "deb";
      if (bytes < BLOCK || header.toString("latin1", 257, 262) !== "ustar") return "tar";
      const name = header.toString("latin1", 0, 100).replace(/\0.*$/s, "").replace(/^\.\//, "");
      if (name === "oci-layout" || name === "manifest.json") return "oci";
      const size = Number.parseInt(header.toString("latin1", 124, 136), 8);
      if (!Number.isSafeInteger(size)) return "tar";
      at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
    }
    return "tar";
  } finally {
    closeSync(fd);
  }
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

function reachable<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "ENOTDIR", "EPERM")) throw error;
    throw new CliError("NotFound", `${path} cannot be read`, { cause: error, hint: "check the path" });
  }
}
