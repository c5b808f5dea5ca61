import { closeSync, constants, openSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { ioctl, ioctlLater, ioctlRequest } from "#host/sys/ioctl.ts";

const BTRFS = 0x94;
const VOL_ARGS_BYTES = 4096;
const RESIZE = ioctlRequest("write", BTRFS, 3, VOL_ARGS_BYTES);
const SUBVOL_CREATE = ioctlRequest("write", BTRFS, 14, VOL_ARGS_BYTES);
const SNAP_DESTROY = ioctlRequest("write", BTRFS, 15, VOL_ARGS_BYTES);
const SNAP_CREATE_V2 = ioctlRequest("write", BTRFS, 23, VOL_ARGS_BYTES);
const TREE_SEARCH = ioctlRequest("both", BTRFS, 17, 4096);
const INO_LOOKUP = ioctlRequest("both", BTRFS, 18, 4096);
const QUOTA_CTL = ioctlRequest("both", BTRFS, 40, 16);
const QGROUP_CREATE = ioctlRequest("write", BTRFS, 42, 16);
const QGROUP_LIMIT = ioctlRequest("read", BTRFS, 43, 48);
const SUBVOL_INFO_BYTES = 504;
const GET_SUBVOL_INFO = ioctlRequest("read", BTRFS, 60, SUBVOL_INFO_BYTES);

const SNAPSHOT_READ_ONLY = 2n;
const QUOTA_ENABLE = 1n;
const QUOTA_ENABLE_SIMPLE = 4n;
const [LIMIT_MAX_REFERENCED, LIMIT_MAX_EXCLUSIVE] = [1n, 2n];
const NO_LIMIT = 2n ** 64n - 1n;
const ROOT_TREE = 1n;
const TOP_TREE = 5n;
const ROOT_REF_KEY = 156;
const QUOTA_TREE = 8n;
const QGROUP_INFO_KEY = 242;
const FIRST_FREE_OBJECTID = 256n;

/** How bytes of a subvolume are counted. `simple` costs nothing per write; `full` follows every shared extent. */
export type QuotaMode = "simple" | "full";

/** Opens a directory; disposing closes it. */
export function openDirectory(path: string): { readonly fd: number } & Disposable {
  const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  return { fd, [Symbol.dispose]: () => closeSync(fd) };
}

/** Runs an action on an open directory. */
export function withDirectory<T>(path: string, action: (fd: number) => T): T {
  using directory = openDirectory(path);
  return action(directory.fd);
}

/** Makes an empty subvolume. Throws `EEXIST`, `ENOSPC`, … */
export function createSubvolume(parentFd: number, name: string): void {
  ioctl(parentFd, SUBVOL_CREATE, volArgs(name));
}

/**
 * Makes a subvolume that holds what another one does at one moment, and shares its data. Waits for the disk, and so does meanwhile
 * whoever makes another in the same directory. Rejects as `createSubvolume` throws.
 */
export async function snapshotSubvolume(
  parentFd: number,
  name: string,
  source: { readonly fd: number; readonly readOnly: boolean },
): Promise<void> {
  // struct btrfs_ioctl_vol_args_v2: source, transaction, flags, four words, name.
  const args = Buffer.alloc(VOL_ARGS_BYTES);
  args.writeBigInt64LE(BigInt(source.fd), 0);
  args.writeBigUInt64LE(source.readOnly ? SNAPSHOT_READ_ONLY : 0n, 16);
  args.write(name, 56, "utf8");
  await ioctlLater(parentFd, SNAP_CREATE_V2, args);
}

/**
 * Subvolumes in directories of the file system's top, with ids above `after`, in the order of their ids; ids only rise. Some, not
 * all: ask again after the last. One is told of as soon as it exists in memory: a snapshot has its content then, and is not yet on
 * the disk.
 */
export function subvolumesAfter(fd: number, after: bigint): readonly { readonly id: bigint; readonly name: string }[] {
  const items = search(fd, { tree: ROOT_TREE, object: TOP_TREE, type: ROOT_REF_KEY }, after + 1n);
  // struct btrfs_root_ref: directory, sequence, length of the name; then the name.
  return items.map(({ offset, item }) => ({ id: offset, name: item.toString("utf8", 18) }));
}

/** Drops a subvolume with all that is in it; the space comes back in the background. Rejects with `ENOENT`. */
export async function destroySubvolume(parentFd: number, name: string): Promise<void> {
  await ioctlLater(parentFd, SNAP_DESTROY, volArgs(name));
}

/** Drops one that is empty but for what its maker put there: a moment. */
export function undoSubvolume(parentFd: number, name: string): void {
  ioctl(parentFd, SNAP_DESTROY, volArgs(name));
}

/** Grows the file system to the end of its device. */
export function growFilesystem(fd: number): void {
  ioctl(fd, RESIZE, volArgs("max"));
}

/** Id of the subvolume that holds an open directory: the id of its quota group as well. */
export function subvolumeId(fd: number): bigint {
  const args = Buffer.alloc(4096);
  args.writeBigUInt64LE(FIRST_FREE_OBJECTID, 8);
  ioctl(fd, INO_LOOKUP, args);
  return args.readBigUInt64LE(0);
}

/** Switches quotas on, simple ones where the kernel (6.7) has them. Harmless when some are on already. */
export function enableQuotas(fd: number): QuotaMode {
  for (const [mode, command] of [
    ["simple", QUOTA_ENABLE_SIMPLE],
    ["full", QUOTA_ENABLE],
  ] as const) {
    const args = Buffer.alloc(16);
    args.writeBigUInt64LE(command, 0);
    try {
      ioctl(fd, QUOTA_CTL, args);
      return mode;
    } catch (error) {
      if (mode === "full" || !hasCode(error, "EINVAL", "ENOTTY", "EOPNOTSUPP", "EEXIST")) throw error;
    }
  }
  throw new Error("unreachable: the last mode returns or throws");
}

/**
 * Bounds the bytes, metadata included, of the subvolume that holds an open directory: `all` that it holds, or its `own`, without those that it shares. Simple
 * quotas count no others. Other limits go: full quotas give a copy those of what it was copied from.
 */
export function limitSubvolume(fd: number, limitBytes: number | undefined, counted: "all" | "own"): void {
  // struct btrfs_ioctl_qgroup_limit_args: group, flags, most referenced, most exclusive, …. Group 0 is that of the subvolume itself.
  const args = Buffer.alloc(48);
  args.writeBigUInt64LE(LIMIT_MAX_REFERENCED | LIMIT_MAX_EXCLUSIVE, 8);
  const limit = limitBytes === undefined ? NO_LIMIT : BigInt(limitBytes);
  args.writeBigUInt64LE(counted === "all" ? limit : NO_LIMIT, 16);
  args.writeBigUInt64LE(counted === "own" ? limit : NO_LIMIT, 24);
  ioctl(fd, QGROUP_LIMIT, args);
}

/** Removes the quota group of a dropped subvolume; false while the kernel still needs it. */
export function destroyQuotaGroup(fd: number, id: bigint): boolean {
  const args = Buffer.alloc(16);
  args.writeBigUInt64LE(id, 8);
  try {
    ioctl(fd, QGROUP_CREATE, args);
    return true;
  } catch (error) {
    if (hasCode(error, "EBUSY")) return false;
    if (hasCode(error, "ENOENT", "ENOTCONN")) return true;
    throw error;
  }
}

/** Whether the subvolume that holds an open directory began as a copy of another one. */
export function isSnapshot(fd: number): boolean {
  const info = Buffer.alloc(SUBVOL_INFO_BYTES);
  ioctl(fd, GET_SUBVOL_INFO, info);
  // struct btrfs_ioctl_get_subvol_info_args: …, the other one's UUID, ….
  return info.subarray(312, 328).some((byte) => byte !== 0);
}

/** What a quota group counts. Simple quotas count nothing as shared. */
interface QuotaGroup {
  readonly id: bigint;
  readonly allBytes: number;
  /** Without those that it shares. */
  readonly ownBytes: number;
}

/** Every quota group by its id; none when quotas are off. */
export function quotaGroups(fd: number): ReadonlyMap<bigint, QuotaGroup> {
  const groups = new Map<bigint, QuotaGroup>();
  for (let from = 0n; ; ) {
    const page = searchGroups(fd, from);
    for (const group of page) groups.set(group.id, group);
    const last = page.at(-1);
    if (last === undefined) return groups;
    from = last.id + 1n;
  }
}

/** What a quota group counts now; `undefined` when there is no such group. */
export function quotaGroup(fd: number, id: bigint): QuotaGroup | undefined {
  const first = searchGroups(fd, id)[0];
  return first?.id === id ? first : undefined;
}

/** One page of the quota tree's info items, from a group id on. */
function searchGroups(fd: number, from: bigint): readonly QuotaGroup[] {
  const items = search(fd, { tree: QUOTA_TREE, object: 0n, type: QGROUP_INFO_KEY }, from);
  // struct btrfs_qgroup_info_item: generation, referenced, the same compressed, exclusive, ….
  return items.map(({ offset, item }) => ({
    id: offset,
    allBytes: Number(item.readBigUInt64LE(8)),
    ownBytes: Number(item.readBigUInt64LE(24)),
  }));
}

interface Item {
  readonly offset: bigint;
  readonly item: Buffer;
}

/** Items of one object and type, as many as fit into a page, by their offsets from `from` on. None when there is no such tree. */
function search(fd: number, key: { tree: bigint; object: bigint; type: number }, from: bigint): readonly Item[] {
  const args = Buffer.alloc(4096);
  const max = 2n ** 64n - 1n;
  // struct btrfs_ioctl_search_key: tree, object, offset and transaction ranges, types, number of items.
  for (const [index, value] of [key.tree, key.object, key.object, from, max, 0n, max].entries()) {
    args.writeBigUInt64LE(value, index * 8);
  }
  args.writeUInt32LE(key.type, 56);
  args.writeUInt32LE(key.type, 60);
  args.writeUInt32LE(4096, 64);
  try {
    ioctl(fd, TREE_SEARCH, args);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
  return parseItems(args);
}

function parseItems(args: Buffer): readonly Item[] {
  const items: Item[] = [];
  let at = 104;
  for (let left = args.readUInt32LE(64); left > 0; left -= 1) {
    // struct btrfs_ioctl_search_header: transid, objectid, offset, type, len; then the item itself.
    const end = at + 32 + args.readUInt32LE(at + 28);
    items.push({ offset: args.readBigUInt64LE(at + 16), item: args.subarray(at + 32, end) });
    at = end;
  }
  return items;
}

/** `struct btrfs_ioctl_vol_args`: an unused descriptor, then the name. */
function volArgs(name: string): Uint8Array {
  const args = Buffer.alloc(VOL_ARGS_BYTES);
  args.write(name, 8, "utf8");
  return args;
}
