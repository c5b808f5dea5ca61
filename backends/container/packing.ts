import { setImmediate } from "node:timers/promises";
import type { SandboxId } from "#core/ids.ts";
import type { PackedDiff, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import type { UpperReading, Volume } from "#host/volume/volume.ts";
import { collapseLayers } from "#images/collapse.ts";
import { checkPatterns, type PackedUpper, packUpper } from "#images/pack/pack.ts";
import type { LayerStore } from "#images/store.ts";
import { diskLimitBytes } from "./check.ts";

/** Each layer costs every lookup of a name a step, and an edge takes 64. */
const MOST_LAYERS = 32;
const MERGED_LAYERS = 24;

/** What packing needs of a node. */
export interface PackingParts {
  readonly volume: Volume;
  readonly cgroups: Pick<Cgroups, "freeze" | "thaw">;
  readonly store: LayerStore;
}

//   hold still ─► copy of the upper ─► let go ─► layer of the copy
//
// Without copies, on a plain directory, the sandbox is held still until the layer is made.

/** Packs containers. */
export class ContainerPacking implements Packing {
  readonly #parts: PackingParts;
  /** The last to hold a sandbox still: who comes later waits, and is not let go by another. */
  readonly #turns = new Map<SandboxId, Promise<unknown>>();

  constructor(parts: PackingParts) {
    this.#parts = parts;
  }

  async pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    const { volume, store } = this.#parts;
    checkPatterns(options.exclude);
    const layerOf = async (taken: UpperReading) => {
      await using reading = taken;
      return await packUpper({ store, dir: reading.dir, options, signal });
    };
    const still = { id: spec.id, consistent: options.consistent, signal };
    if (!volume.copies) {
      const { result, frozenMs } = await this.#atOneInstant(still, () => layerOf(volume.readUpper(spec.id)));
      return diffOf(spec, result, frozenMs, store);
    }
    const { result, frozenMs } = await this.#atOneInstant(still, async () => volume.readUpper(spec.id));
    return diffOf(spec, await layerOf(result), frozenMs, store);
  }

  get copies(): boolean {
    return this.#parts.volume.copies;
  }

  async copy(spec: SandboxSpec, to: readonly SandboxId[], signal: AbortSignal): Promise<{ readonly frozenMs: number }> {
    const { volume } = this.#parts;
    const still = { id: spec.id, consistent: true, signal };
    const { result, frozenMs } = await this.#atOneInstant(still, async () => volume.readUpper(spec.id));
    await using reading = result;
    const made: SandboxId[] = [];
    try {
      for (const id of to) {
        signal.throwIfAborted();
        reading.copyTo(id, diskLimitBytes(spec));
        made.push(id);
        // Each waits for the disk: others shall have their turn in between.
        await setImmediate();
      }
      return { frozenMs };
    } catch (error) {
      for (const id of made) await volume.removeUpper(id);
      throw error;
    }
  }

  /** Runs `action` while nothing in the sandbox runs. */
  async #atOneInstant<T>(
    { id, consistent, signal }: { id: SandboxId; consistent: boolean; signal: AbortSignal },
    action: () => Promise<T>,
  ): Promise<{ readonly result: T; readonly frozenMs: number }> {
    const { cgroups } = this.#parts;
    const before = this.#turns.get(id);
    const turn = Promise.withResolvers<void>();
    this.#turns.set(id, turn.promise);
    try {
      await before;
      signal.throwIfAborted();
      if (!consistent) return { result: await action(), frozenMs: 0 };
      const startedMs = performance.now();
      await cgroups.freeze(id, signal);
      try {
        const result = await action();
        cgroups.thaw(id);
        return { result, frozenMs: performance.now() - startedMs };
      } finally {
        cgroups.thaw(id);
      }
    } finally {
      turn.resolve();
      if (this.#turns.get(id) === turn.promise) this.#turns.delete(id);
    }
  }
}

async function diffOf(
  { layers: below, config }: SandboxSpec,
  { digest, entries, dataBytes, skipped }: PackedUpper,
  frozenMs: number,
  store: LayerStore,
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
