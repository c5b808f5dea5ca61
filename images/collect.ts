import type { LayerDigest } from "#core/sandbox.ts";
import type { BlobDigest } from "./digest.ts";
import type { CollectOptions, LayerStore } from "./store.ts";

/** What a collection would remove. */
export interface Garbage {
  readonly layers: LayerDigest[];
  /** Of metadata and data, as far as nothing else has them. */
  readonly bytes: number;
}

/** What `collectGarbage` would remove now. Removes nothing. */
export async function findGarbage(
  store: LayerStore,
  keep: ReadonlySet<LayerDigest>,
  { addedBeforeMs }: CollectOptions,
): Promise<Garbage> {
  const isOld = (addedAtMs: number | undefined) => addedAtMs !== undefined && addedAtMs < addedBeforeMs;
  const layers: LayerDigest[] = [];
  const needed = new Set<BlobDigest>();
  let bytes = 0;
  for (const digest of await store.list()) {
    const { metadata, blobs } = await store.manifest(digest);
    if (keep.has(digest) || !isOld(await store.addedAtMs(digest))) {
      for (const blob of blobs) needed.add(blob.digest);
      continue;
    }
    layers.push(digest);
    bytes += metadata.sizeBytes;
  }
  for (const digest of await store.blobs.list()) {
    if (needed.has(digest) || !isOld(await store.blobs.addedAtMs(digest))) continue;
    bytes += (await store.blobs.descriptor(digest)).sizeBytes;
  }
  return { layers, bytes };
}

/**
 * Removes every layer that is not in `keep` and was not added since `addedBeforeMs`, then the blobs that no layer needs any more.
 * Returns the layers that it removed. Safe while layers are made.
 */
export async function collectGarbage(
  store: LayerStore,
  keep: ReadonlySet<LayerDigest>,
  options: CollectOptions,
): Promise<readonly LayerDigest[]> {
  const removed: LayerDigest[] = [];
  for (const digest of await store.list()) {
    if (!keep.has(digest) && (await store.removeOld(digest, options))) removed.push(digest);
  }
  await store.collectBlobs(options);
  return removed;
}
