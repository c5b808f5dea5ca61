import type { LayerDigest } from "#core/sandbox.ts";
import type { Inode as LayerInode } from "#images/erofs/inode.ts";
import { readNames } from "#images/ext4/directory.ts";
import type { Ext4Disk } from "#images/ext4/disk.ts";
import { findDirectory } from "#images/ext4/find.ts";
import type { Inode } from "#images/ext4/inode.ts";
import { readXattrs } from "#images/ext4/xattrs.ts";
import { readParts, readTree } from "#images/layers/retree.ts";
import { isWhiteout } from "#images/layers/whiteouts.ts";
import type { Names } from "#images/pack/patterns.ts";
import type { LayerStore } from "#images/store.ts";

const DIRECTORY = "etc";
const FILE = "machine-id";

/** Where a sandbox's disk and what is below it are. */
interface Places {
  readonly store: LayerStore;
  readonly layers: readonly LayerDigest[];
  readonly upper: string;
}

/**
 * Tells what of a disk every sandbox has of its own, since it is written for each: its machine-id, and the directory of that where nothing else in it, and
 * nothing about it, has changed.
 */
export async function ownIdentity(disk: Ext4Disk, places: Places): Promise<(names: Names) => boolean> {
  const directory = await findDirectory(disk, [places.upper, DIRECTORY]);
  const isUntouched = directory !== undefined && (await isOnlyPlace(disk, directory, places));
  return ([first, ...below]) =>
    first === DIRECTORY && ((below.length === 1 && below[0] === FILE) || (below.length === 0 && isUntouched));
}

async function isOnlyPlace(disk: Ext4Disk, directory: Inode, { store, layers }: Places): Promise<boolean> {
  for await (const { name } of readNames(disk, directory)) if (name !== FILE) return false;
  const below = await topmost(store, layers);
  if (below?.content.type !== "directory") return false;
  const { mode, uid, gid, xattrs } = below.attributes;
  const isSame = directory.mode === mode && directory.uid === uid && directory.gid === gid;
  const own = [...((await readXattrs(disk, directory)) ?? [])].filter(([name]) => !name.startsWith("trusted.overlay."));
  return isSame && own.length === 0 && (xattrs === undefined || xattrs.size === 0);
}

/** What the layers have there. */
async function topmost(store: LayerStore, layers: readonly LayerDigest[]): Promise<LayerInode | undefined> {
  for (const part of (await readParts(store, layers)).toReversed()) {
    const root = await readTree(store, part, part.manifest.blobs);
    const found = root.content.type === "directory" ? root.content.children.get(DIRECTORY) : undefined;
    if (found !== undefined) return isWhiteout(found) ? undefined : found;
  }
  return undefined;
}
