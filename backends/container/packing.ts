import type { SandboxId } from "#core/ids.ts";
import type { Copying, PackedDiff, Packing, PackOptions } from "#core/packing.ts";
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
      packUpper({ store, walk: (visitor, until) => walk({ dir, source }, visitor, until), options, signal }),
    );
    return await diffOf(store, spec, { ...packed, frozenMs: still?.frozenMs ?? 0 });
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
