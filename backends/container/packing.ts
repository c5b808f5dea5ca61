import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying, PackedDiff, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import type { Still, UpperReading, Volume } from "#host/volume/volume.ts";
import { diffOf } from "#images/pack/diff.ts";
import { checkPatterns, packUpper } from "#images/pack/pack.ts";
import { walk } from "#images/pack/walk.ts";
import type { LayerStore } from "#images/store.ts";
import { diskLimitBytes } from "./check.ts";

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
  readonly packs = true;
  readonly #parts: PackingParts;
  readonly #turns = new Map<SandboxId, Promise<unknown>>();

  constructor(parts: PackingParts) {
    this.#parts = parts;
  }

  async pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    const { volume, store } = this.#parts;
    checkPatterns(options.exclude);
    const still = options.consistent ? this.#stillness(spec.id, signal) : undefined;
    const packed = await withReading(volume.readUpper(spec.id, still), (reading) =>
      layerOf(store, reading, options, signal),
    );
    return await diffOf(store, spec, { ...packed, frozenMs: still?.frozenMs ?? 0 });
  }

  get copies(): boolean {
    return this.#parts.volume.copies;
  }

  async copy(spec: SandboxSpec, { to, pack }: Copies, signal: AbortSignal): Promise<Copied> {
    const { volume, store } = this.#parts;
    const still = this.#stillness(spec.id, signal);
    const copied = Promise.withResolvers<void>();
    const whole = withReading(volume.readUpper(spec.id, still), async (reading) => {
      await this.#copyAll(spec, to, reading, signal);
      copied.resolve();
      if (pack === undefined) return undefined;
      const packed = await layerOf(store, reading, pack, signal);
      return await diffOf(store, spec, { ...packed, frozenMs: still.frozenMs });
    });
    if (pack === undefined) {
      await whole;
      return { frozenMs: still.frozenMs };
    }
    const packed = whole.then((diff) => diff ?? Promise.reject(new Error("a pack that was asked for is missing")));
    packed.catch(copied.reject);
    await copied.promise;
    return { frozenMs: still.frozenMs, packed };
  }

  async #copyAll(spec: SandboxSpec, to: readonly SandboxId[], reading: UpperReading, signal: AbortSignal) {
    const made: SandboxId[] = [];
    try {
      for (const id of to) {
        signal.throwIfAborted();
        await reading.copyTo(id, diskLimitBytes(spec));
        made.push(id);
      }
    } catch (error) {
      for (const id of made) await this.#parts.volume.removeUpper(id);
      throw error;
    }
  }

  #stillness(id: SandboxId, signal: AbortSignal): Stillness {
    return new Stillness({ id, signal, cgroups: this.#parts.cgroups, turns: this.#turns });
  }
}

function layerOf(store: LayerStore, { dir, source }: UpperReading, options: PackOptions, signal: AbortSignal) {
  return packUpper({ store, walk: (visitor, until) => walk({ dir, source }, visitor, until), options, signal });
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
