import type { LayerDigest } from "#core/sandbox.ts";
import type { CollectOptions, LayerStore } from "./store.ts";

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
