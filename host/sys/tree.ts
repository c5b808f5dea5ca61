import { closeSync } from "node:fs";
import { libcFunction } from "#host/sys/libc.ts";

// The same numbers on x86-64 and arm64; older C libraries have no wrappers.
const SYS = { openTree: 428, moveMount: 429, mountSetattr: 442 } as const;
const AT_FDCWD = -100;
const AT_EMPTY_PATH = 0x1000;
const OPEN_TREE_CLONE = 1;
const OPEN_TREE_CLOEXEC = 0o2000000;
const MOVE_MOUNT_F_EMPTY_PATH = 4;
const MOUNT_ATTR_IDMAP = 0x100000n;

/**
 * Mounts what is at `source` a second time, at `target`, with its ids mapped by the user namespace of an open
 * `/proc/<pid>/ns/user`. Throws `EINVAL` where the file system does not take id maps.
 */
export function bindIdmapped(source: string, target: string, userNamespaceFd: number): void {
  const tree = openTree(SYS.openTree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  try {
    // struct mount_attr: attributes to set, to clear, propagation, user namespace.
    const attributes = Buffer.alloc(32);
    attributes.writeBigUInt64LE(MOUNT_ATTR_IDMAP, 0);
    attributes.writeBigUInt64LE(BigInt(userNamespaceFd), 24);
    mountSetattr(SYS.mountSetattr, tree, "", AT_EMPTY_PATH, attributes, attributes.length);
    moveMount(SYS.moveMount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
  } finally {
    closeSync(tree);
  }
}

const openTree = libcFunction<[number, number, string, number]>(
  "syscall",
  ["long", "long", "text", "long"],
  "open_tree",
);
const mountSetattr = libcFunction<[number, number, string, number, Uint8Array, number]>(
  "syscall",
  ["long", "long", "text", "long", "buffer", "ulong"],
  "mount_setattr",
);
const moveMount = libcFunction<[number, number, string, number, string, number]>(
  "syscall",
  ["long", "long", "text", "long", "text", "long"],
  "move_mount",
);
