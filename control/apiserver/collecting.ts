import type { LayerDigest } from "#core/sandbox.ts";
import { sandboxesOf } from "../sandbox-list.ts";
import type { Services } from "./handler.ts";

/** An artifact gets its tag only after its layers are on the node, and a create looks at tags first; younger ones are left alone. */
const YOUNG_MS = 60 * 60_000;

/** What must not be collected. */
interface Needed {
  readonly layers: Set<LayerDigest>;
  /** Digests of artifacts. */
  readonly artifacts: Set<string>;
}

/**
 * Forgets artifacts that nothing needs, and removes their layers from the node. Rejects, and removes nothing, when a node does not
 * answer: it may need any.
 */
export async function collect(
  { catalogue, clock, creator, maker, watcher }: Services,
  signal: AbortSignal,
): Promise<void> {
  // Creates are looked at before sandboxes: one that ends in between is seen as a sandbox.
  const needed: Needed = { layers: new Set(creator.layersUnderWay()), artifacts: new Set(creator.artifactsUnderWay()) };
  for (const [, node] of watcher.nodes()) {
    for await (const { spec } of sandboxesOf(node, {}, signal)) {
      for (const layer of spec.layers) needed.layers.add(layer);
      for (const { digest } of spec.origin.artifacts ?? []) needed.artifacts.add(digest);
    }
  }
  await catalogue.prune(needed.artifacts, clock.now() - YOUNG_MS);
  for (const layer of await catalogue.layers()) needed.layers.add(layer);
  await maker.collect(needed.layers);
}
