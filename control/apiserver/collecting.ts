import type { LayerDigest } from "#core/sandbox.ts";
import type { Garbage } from "#images/collect.ts";
import type { InUse } from "../create.ts";
import { sandboxesOf } from "../sandbox-list.ts";
import type { Services } from "./handler.ts";

/** What a collection looks at. */
export type Collected = Pick<Services, "catalogue" | "clock" | "creator" | "maker" | "watcher">;

/** An artifact gets its tag only after its layers are on the node; younger ones are left alone. */
const YOUNG_MS = 60 * 60_000;

/**
 * Forgets artifacts that nothing needs, and removes layers that nothing needs from the node; resolves to those. Rejects, and removes
 * nothing, when a node does not answer: it may need any.
 */
export async function collect(parts: Collected, signal: AbortSignal): Promise<readonly LayerDigest[]> {
  const { catalogue, clock, maker } = parts;
  await catalogue.prune(async () => new Set((await inUse(parts, signal)).artifacts), clock.now() - YOUNG_MS);
  return await maker.collect(await neededLayers(parts, signal));
}

/** What `collect` would remove from the node now. */
export async function garbage(parts: Collected, signal: AbortSignal): Promise<Garbage> {
  const { catalogue, clock, maker } = parts;
  const used = await inUse(parts, signal);
  const named = await catalogue.layersPruned(async () => new Set(used.artifacts), clock.now() - YOUNG_MS);
  return await maker.garbage(new Set([...named, ...used.layers]));
}

/** Layers of artifacts, sandboxes and creates under way. Rejects when a node does not answer. */
export async function neededLayers(
  parts: Omit<Collected, "clock" | "maker">,
  signal: AbortSignal,
): Promise<ReadonlySet<LayerDigest>> {
  // Before what is in use: a create that finds a tag later than this finds one whose layers are kept.
  const named = await parts.catalogue.layers();
  const { layers } = await inUse(parts, signal);
  return new Set([...named, ...layers]);
}

async function inUse(
  { creator, watcher }: Pick<Collected, "creator" | "watcher">,
  signal: AbortSignal,
): Promise<InUse> {
  // Creates are looked at before sandboxes: one that ends in between is seen as a sandbox.
  const underWay = await creator.underWay();
  const layers = new Set(underWay.layers);
  const artifacts = new Set(underWay.artifacts);
  for (const [, node] of watcher.nodes()) {
    for await (const { spec } of sandboxesOf(node, {}, signal)) {
      for (const layer of spec.layers) layers.add(layer);
      for (const { digest } of spec.origin.artifacts ?? []) artifacts.add(digest);
    }
  }
  return { layers: [...layers], artifacts: [...artifacts] };
}
