import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { SharedLayers } from "./store/shared-layers.ts";
import type { LayerStore } from "./store.ts";

/** Bounds how long a create waits for layers; a store that makes no progress fails long before. */
const SUPPLY_MS = 30 * 60_000;

/** Sees that a node has the layers of a sandbox before it is made: from its own store, or from the one that nodes share. */
export class LayerSupply {
  readonly #store: LayerStore;
  readonly #shared: SharedLayers | undefined;

  constructor(store: LayerStore, shared: SharedLayers | undefined) {
    this.#store = store;
    this.#shared = shared;
  }

  /** What mounts need; data may come when it is read. Rejects with `NotFound` for a layer that nobody has, and as pulls do. */
  async metadata(digests: readonly LayerDigest[]): Promise<void> {
    const missing: LayerDigest[] = [];
    for (const digest of digests) if (!(await this.#store.has(digest))) missing.push(digest);
    const [first] = missing;
    if (first === undefined) return;
    if (this.#shared === undefined) throw noLayer(first);
    await this.#shared.provideMetadata(missing, AbortSignal.timeout(SUPPLY_MS));
  }
}

function noLayer(digest: LayerDigest): SandboxError {
  return new SandboxError("NotFound", `this node has no layer ${digest}`, {
    hint: "import the artifact on this node, or start it with the store that has it: --store",
    details: { layer: digest },
  });
}
