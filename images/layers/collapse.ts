import type { LayerDigest } from "#core/sandbox.ts";
import type { BlobDigest } from "../digest.ts";
import { MAX_DEVICES } from "../erofs/format.ts";
import type { LayerBlob } from "../manifest.ts";
import type { LayerStore } from "../store.ts";
import { mergeTrees } from "./merge.ts";
import { readParts, readTree, type StoredPart, writeTree } from "./retree.ts";

/**
 * Merges consecutive layers whose data and metadata together are at most `maxBytes`, as many as fit: the stack that is returned shows
 * what `layers` (lowest first) show, over and under whatever else. Only metadata is written: the new layers point into the blobs of
 * the old ones, which need not be here. Rejects with `NotFound` or `Internal` for a layer that is missing or damaged.
 */
export async function collapseLayers(
  store: LayerStore,
  layers: readonly LayerDigest[],
  maxBytes: number,
): Promise<readonly LayerDigest[]> {
  const parts = await readParts(store, layers);
  const collapsed: LayerDigest[] = [];
  for (const group of groupsOf(parts, maxBytes)) collapsed.push(await mergeGroup(store, group));
  return collapsed;
}

/** Neighbours that fit together: into the size, and into the devices of one image. */
function groupsOf(parts: readonly StoredPart[], maxBytes: number): readonly (readonly StoredPart[])[] {
  const groups: StoredPart[][] = [];
  for (const part of parts) {
    const last = groups.at(-1);
    if (last !== undefined && fits([...last, part], maxBytes)) last.push(part);
    else groups.push([part]);
  }
  return groups;
}

function fits(parts: readonly StoredPart[], maxBytes: number): boolean {
  const blobs = blobsOf(parts);
  let sizeBytes = 0;
  for (const blob of blobs.values()) sizeBytes += blob.sizeBytes;
  for (const { manifest } of parts) sizeBytes += manifest.metadata.sizeBytes;
  return blobs.size <= MAX_DEVICES && sizeBytes <= maxBytes;
}

function blobsOf(parts: readonly StoredPart[]): ReadonlyMap<BlobDigest, LayerBlob> {
  return new Map(parts.flatMap(({ manifest }) => manifest.blobs.map((blob) => [blob.digest, blob] as const)));
}

async function mergeGroup(store: LayerStore, group: readonly StoredPart[]): Promise<LayerDigest> {
  const [lowest, ...above] = group;
  if (lowest === undefined) throw new Error("a group without a layer");
  if (above.length === 0) return lowest.digest;
  const blobs = [...blobsOf(group).values()];
  let root = await readTree(store, lowest, blobs);
  for (const part of above) root = mergeTrees(root, await readTree(store, part, blobs));
  return await writeTree(store, root, blobs);
}
