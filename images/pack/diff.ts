import type { PackedDiff } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { collapseLayers } from "../layers/collapse.ts";
import type { LayerStore } from "../store.ts";
import type { PackedUpper } from "./pack.ts";

/** Each layer costs every lookup of a name a step, and an edge takes 64. */
const MOST_LAYERS = 32;
const MERGED_LAYERS = 24;

/** The environment that a sandbox's layers and its packed upper are. In a long chain the upper layers become one. */
export async function diffOf(
  store: LayerStore,
  { layers: below, config }: Pick<SandboxSpec, "layers" | "config">,
  { digest, entries, dataBytes, skipped, frozenMs }: PackedUpper & Pick<PackedDiff, "frozenMs">,
): Promise<PackedDiff> {
  const layers = await compacted(store, [...below, digest]);
  const sizeBytes = await sizeOf(store, layers);
  return { layers, config, sizeBytes, layer: layers.at(-1) ?? digest, entries, dataBytes, frozenMs, skipped };
}

/** In a long chain the upper layers become one; their data stay where they are. */
async function compacted(store: LayerStore, layers: PackedDiff["layers"]): Promise<PackedDiff["layers"]> {
  if (layers.length <= MOST_LAYERS) return layers;
  const merged = await collapseLayers(store, layers.slice(-MERGED_LAYERS), Number.MAX_SAFE_INTEGER);
  return [...layers.slice(0, -MERGED_LAYERS), ...merged];
}

/** Metadata of each layer, and each blob once. */
async function sizeOf(store: LayerStore, layers: PackedDiff["layers"]): Promise<number> {
  const manifests = await Promise.all(layers.map((digest) => store.manifest(digest)));
  const blobs = new Map(manifests.flatMap((manifest) => manifest.blobs).map((blob) => [blob.digest, blob.sizeBytes]));
  return [...manifests.map(({ metadata }) => metadata.sizeBytes), ...blobs.values()].reduce(
    (sum, size) => sum + size,
    0,
  );
}
