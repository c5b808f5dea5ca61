import type { ByteString } from "#core/tar/entry.ts";
import { badInput, shown } from "#core/tar/entry.ts";
import { MAX_NAME_BYTES } from "#core/tar/path.ts";
import { canStoreXattr, xattrBytes } from "../erofs/xattrs.ts";
import { MAX_XATTR_BYTES } from "../limits.ts";
import { OPAQUE_XATTR } from "./whiteouts.ts";

/** Attributes that mean something to the overlay a tree was taken from, and nothing in a layer of its own. */
const OF_ANOTHER_OVERLAY = ["origin", "impure", "nlink", "upper", "uuid"].map((name) => `trusted.overlay.${name}`);

type Xattrs = ReadonlyMap<ByteString, Uint8Array>;

/**
 * What of an entry's attributes a layer keeps: `user.*`, file capabilities, POSIX ACLs, and the opaque mark of a
 * directory. Labels of the host's security modules are dropped: they name policies of another machine. Refused: marks
 * that would make the overlay look elsewhere for a file's content (`redirect`, `metacopy`).
 */
export function keptXattrs(path: ByteString, xattrs: Xattrs | undefined): Xattrs | undefined {
  if (xattrs === undefined || xattrs.size === 0) return undefined;
  const kept = new Map([...xattrs].filter(([name]) => isKept(path, name)));
  for (const [name, value] of kept) {
    // Lists of names end each with a zero: what comes behind one would be a name of its own.
    if (name.includes("\0")) throw badInput(`${shown(path)} has an extended attribute of an impossible name`);
    if (name.length > MAX_NAME_BYTES || value.length > MAX_XATTR_BYTES) {
      throw badInput(`${shown(path)} has an extended attribute that is larger than Linux allows`);
    }
  }
  if (xattrBytes(kept) > MAX_XATTR_BYTES) {
    throw badInput(`${shown(path)} has more than ${MAX_XATTR_BYTES} bytes of extended attributes`);
  }
  return kept.size === 0 ? undefined : kept;
}

/** Whether an attribute of a sandbox's own files has a place in a layer: what an overlay points elsewhere with has none. */
export function isKeptXattr(name: ByteString): boolean {
  if (name.startsWith("security.")) return name === "security.capability";
  return name.startsWith("trusted.") ? name === OPAQUE_XATTR : canStoreXattr(name);
}

function isKept(path: ByteString, name: ByteString): boolean {
  if (name.startsWith("trusted.overlay.")) {
    if (name === OPAQUE_XATTR) return true;
    if (OF_ANOTHER_OVERLAY.includes(name)) return false;
    throw badInput(
      `${shown(path)} carries ${shown(name)}, which points to content outside the tree`,
      "pack the overlay with redirect_dir=off and metacopy=off",
    );
  }
  return isKeptXattr(name);
}
