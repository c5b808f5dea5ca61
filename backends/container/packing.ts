import type { SandboxId } from "#core/ids.ts";
import type { Copying, PackedDiff, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import type { Still, UpperReading, Volume } from "#host/volume/volume.ts";
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
// Without copies, on a plain directory, the sandbox is held still until the layer is made: the volume decides.

/** Packs containers. */
export class ContainerPacking implements Packing, Copying {
  readonly processes = false;
  readonly #parts: PackingParts;
  readonly #turns = new Map<SandboxId, Promise<unknown>>();

  constructor(parts: PackingParts) {
    this.#parts = parts;
  }

  async pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    const { volume, store } = this.#parts;
    checkPatterns(options.exclude);
    const still = options.consistent ? this.#stillness(spec.id, signal) : undefined;
    const packed = await withReading(volume.readUpper(spec.id, still), ({ dir, source }) =>
      packUpper({ store, tree: { dir, source }, options, signal }),
    );
    return diffOf(spec, packed, still?.frozenMs ?? 0, store);
  }

  get copies(): boolean {
    return this.#parts.volume.copies;
  }

  async copy(spec: SandboxSpec, to: readonly SandboxId[], signal: AbortSignal): Promise<{ readonly frozenMs: number }> {
    const { volume } = this.#parts;
    const still = this.#stillness(spec.id, signal);
    const made: SandboxId[] = [];
    try {
      await withReading(volume.readUpper(spec.id, still), async (reading) => {
        for (const id of to) {
          signal.throwIfAborted();
          await reading.copyTo(id, diskLimitBytes(spec));
          made.push(id);
        }
      });
      return { frozenMs: still.frozenMs };
    } catch (error) {
      for (const id of made) await volume.removeUpper(id);
      throw error;
    }
  }

  #stillness(id: SandboxId, signal: AbortSignal): Stillness {
    return new Stillness({ id, signal, cgroups: this.#parts.cgroups, turns: this.#turns });
  }
}

async function withReading<T>(taken: Promise<UpperReading>, action: (reading: UpperReading) => Promise<T>): Promise<T> {
  await using reading = await taken;
  return await action(reading);
}

interface StillnessOptions {
  readonly id: SandboxId;
  readonly signal: AbortSignal;
  readonly cgroups: PackingParts["cgroups"];
  /** The last to hold a sandbox still: who comes later waits, and is not let go by another. */
  readonly turns: Map<SandboxId, Promise<unknown>>;
}

/** Nothing in a sandbox runs. */
class Stillness implements Still {
  frozenMs = 0;
  readonly #options: StillnessOptions;
  readonly #turn = Promise.withResolvers<void>();
  #startedMs = 0;

  constructor(options: StillnessOptions) {
    this.#options = options;
  }

  async hold(): Promise<void> {
    const { id, signal, cgroups, turns } = this.#options;
    const before = turns.get(id);
    turns.set(id, this.#turn.promise);
    try {
      await before;
      signal.throwIfAborted();
      this.#startedMs = performance.now();
      await cgroups.freeze(id, signal);
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  letGo(): void {
    try {
      this.#options.cgroups.thaw(this.#options.id);
      this.frozenMs = performance.now() - this.#startedMs;
    } finally {
      this.#leave();
    }
  }

  #leave(): void {
    const { id, turns } = this.#options;
    this.#turn.resolve();
    if (turns.get(id) === this.#turn.promise) turns.delete(id);
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
