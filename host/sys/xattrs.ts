import { hasCode } from "#core/errors.ts";
import { libcFunction } from "#host/sys/libc.ts";

/** XATTR_LIST_MAX and XATTR_SIZE_MAX of the kernel. */
const MAX_BYTES = 65_536;

/**
 * All extended attributes of a file, names as byte strings (`latin1`); `undefined` when it has none or its file system
 * knows none. A path given as bytes is not followed when it is a link; a text path (`/proc/self/fd/…`) is.
 */
export function readXattrs(path: string | Uint8Array): ReadonlyMap<string, Uint8Array> | undefined {
  const isFollowed = typeof path === "string";
  const file = Buffer.concat([Buffer.from(path), Buffer.alloc(1)]);
  const names = names0(isFollowed, file);
  if (names.length === 0) return undefined;
  const value = Buffer.allocUnsafe(MAX_BYTES);
  const found = new Map<string, Uint8Array>();
  for (const name of names) {
    const key = Buffer.from(`${name}\0`, "latin1");
    const length = (isFollowed ? getxattr : lgetxattr)(file, key, value, MAX_BYTES);
    found.set(name, Uint8Array.from(value.subarray(0, length)));
  }
  return found;
}

function names0(isFollowed: boolean, file: Uint8Array): readonly string[] {
  const call = isFollowed ? listxattr : llistxattr;
  try {
    // Most files have none: asking for the length first saves them a large buffer.
    if (call(file, null, 0) === 0) return [];
    const list = Buffer.allocUnsafe(MAX_BYTES);
    const length = call(file, list, MAX_BYTES);
    return list
      .toString("latin1", 0, length)
      .split("\0")
      .filter((name) => name !== "");
  } catch (error) {
    if (hasCode(error, "EOPNOTSUPP", "ENOTSUP")) return [];
    throw error;
  }
}

const listxattr = libcFunction<[Uint8Array, Uint8Array | null, number]>("listxattr", ["buffer", "buffer", "ulong"]);
const llistxattr = libcFunction<[Uint8Array, Uint8Array | null, number]>("llistxattr", ["buffer", "buffer", "ulong"]);
const getxattr = libcFunction<[Uint8Array, Uint8Array, Uint8Array, number]>("getxattr", [
  "buffer",
  "buffer",
  "buffer",
  "ulong",
]);
const lgetxattr = libcFunction<[Uint8Array, Uint8Array, Uint8Array, number]>("lgetxattr", [
  "buffer",
  "buffer",
  "buffer",
  "ulong",
]);
