import type { LayerDigest } from "#core/sandbox.ts";
import type { LayerStore } from "./store.ts";

/** What a collection spares beside the layers it is told to keep. */
export interface CollectOptions {
  /** Layers added after this moment stay: their artifact may be about to get its name. Milliseconds since 1970. */
  readonly addedBeforeMs: number;
}

/** Removes every layer that is not in `keep` and was not added since `addedBeforeMs`. Returns what it removed. */
export async function collectGarbage(
  store: LayerStore,
  keep: ReadonlySet<LayerDigest>,
  { addedBeforeMs }: CollectOptions,
): Promise<readonly LayerDigest[]> {
  const removed: LayerDigest[] = [];
  for (const digest of await store.list()) {
    if (keep.has(digest)) continue;
    const addedAtMs = await store.addedAtMs(digest);
    if (addedAtMs !== undefined && addedAtMs >= addedBeforeMs) continue;
    await store.remove(digest);
    removed.push(digest);
  }
  return removed;
}
