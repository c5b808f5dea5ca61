import type { CellRequest, CellResult } from "#core/cells.ts";
import { FunctionContainer, type FunctionContainerOptions } from "./container.ts";
import type { Keeper, KeeperState } from "./keeper.ts";

/** How far pools go ahead of need. */
export interface PoolLimits {
  /** Keepers that wait for a call while a pool is in use, beyond those that were lately in use at once. */
  readonly floor: number;
  /** Most keepers, those beyond not counted. */
  readonly ceiling: number;
  /** A pool that nobody has used for so long is given back. */
  readonly idleMs: number;
}

/** What pools are made with. */
export type PoolOptions = Omit<FunctionContainerOptions, "signal"> & {
  readonly limits: PoolLimits;
  readonly log: (line: string) => void;
};

/** A container, and the keepers in it that have a cell ready. */
interface Housing {
  readonly container: FunctionContainer;
  readonly ready: Keeper[];
  /** Keepers that have a call, or are on their way to the next. */
  used: number;
  /** It starts no more keepers, and goes with its last call. */
  retired: boolean;
}

type Place = readonly [Housing, Keeper];

const OPEN_MS = 60_000;
/** After so long without being reached, the memory of a peak has halved. */
const FORGET_PEAK_MS = 5_000;

/** The keepers of one runtime on one node: as many as were lately in use at once, and a floor of others, up to a ceiling. */
export class FunctionPool {
  readonly #options: PoolOptions;
  #housing: Promise<Housing> | undefined;
  readonly #housings = new Set<Housing>();
  readonly #waiting: PromiseWithResolvers<Place>[] = [];
  #making = 0;
  #inUse = 0;
  #peak = 0;
  #usedAtMs: number;
  #peakAtMs: number;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#usedAtMs = this.#peakAtMs = options.clock.now();
  }

  get idle(): boolean {
    return this.#inUse === 0 && this.#options.clock.now() - this.#usedAtMs >= this.#options.limits.idleMs;
  }

  get busy(): boolean {
    return this.#inUse > 0;
  }

  get containers(): readonly string[] {
    return [...this.#housings].map(({ container }) => container.id);
  }

  /** Carries out one call in a cell that had none before. Rejects with `SandboxLost` when the cell is lost. */
  async run(request: CellRequest, signal: AbortSignal): Promise<CellResult> {
    this.#count(1);
    try {
      const [housing, keeper] = await this.#take(signal);
      this.#refill();
      try {
        return await keeper.run(request, signal);
      } finally {
        void keeper.next.then((state) => this.#back(housing, keeper, state));
      }
    } finally {
      this.#count(-1);
    }
  }

  /** Ends everything. Calls that run are lost. */
  async close(): Promise<void> {
    await this.#housing?.catch(() => undefined);
    this.#housing = undefined;
    await Promise.all([...this.#housings].map((housing) => this.#destroy(housing)));
  }

  async #take(signal: AbortSignal): Promise<Place> {
    const housing = await this.#open();
    signal.throwIfAborted();
    const keeper = housing.ready.pop();
    if (keeper !== undefined) {
      housing.used += 1;
      return [housing, keeper];
    }
    const waiting = Promise.withResolvers<Place>();
    this.#waiting.push(waiting);
    this.#refill();
    const leave = () => {
      const at = this.#waiting.indexOf(waiting);
      if (at >= 0) this.#waiting.splice(at, 1);
      waiting.reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await waiting.promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #open(): Promise<Housing> {
    this.#housing ??= this.#openNew().catch((error: unknown) => {
      this.#housing = undefined;
      throw error;
    });
    return this.#housing;
  }

  async #openNew(): Promise<Housing> {
    const container = await FunctionContainer.open({ ...this.#options, signal: AbortSignal.timeout(OPEN_MS) });
    const housing: Housing = { container, ready: [], used: 0, retired: false };
    this.#housings.add(housing);
    void container.lost.then(() => this.#destroy(housing));
    return housing;
  }

  get #wanted(): number {
    const { floor, ceiling } = this.#options.limits;
    return Math.min(ceiling, Math.max(this.#peak, this.#inUse)) + floor;
  }

  #refill(): void {
    void this.#housing?.then(
      (housing) => {
        const has = () => housing.ready.length + housing.used + this.#making;
        while (!housing.retired && has() < Math.max(this.#wanted, 1)) void this.#make(housing);
      },
      () => undefined,
    );
  }

  async #make(housing: Housing): Promise<void> {
    this.#making += 1;
    try {
      this.#give(housing, await housing.container.startKeeper());
    } catch (error) {
      this.#options.log(`a container of functions made no cell: ${String(error)}`);
      this.#retire(housing);
      this.#waiting.shift()?.reject(error);
    } finally {
      this.#making -= 1;
    }
  }

  /** To whoever waits longest; else it waits itself, unless enough do. */
  #give(housing: Housing, keeper: Keeper): void {
    const waiting = housing.retired ? undefined : this.#waiting.shift();
    if (waiting !== undefined) {
      housing.used += 1;
      waiting.resolve([housing, keeper]);
    } else if (housing.retired || housing.ready.length + housing.used >= this.#wanted) {
      keeper.close();
    } else {
      housing.ready.push(keeper);
    }
  }

  #back(housing: Housing, keeper: Keeper, state: KeeperState): void {
    housing.used -= 1;
    // A container that was destroyed takes its keepers along before they could say that they have ended.
    if (state === "unclean" && !housing.retired) {
      this.#options.log(
        `a container of functions was not clean after a call, and is destroyed: ${housing.container.id}`,
      );
      this.#retire(housing);
    }
    if (state === "ready") this.#give(housing, keeper);
    else this.#refill();
    if (housing.retired && housing.used === 0) void this.#destroy(housing);
  }

  /** No new call gets into it. */
  #retire(housing: Housing): void {
    if (housing.retired) return;
    housing.retired = true;
    this.#housing = undefined;
    for (const keeper of housing.ready.splice(0)) keeper.close();
    if (housing.used === 0) void this.#destroy(housing);
    // Whoever waits for a keeper of it waits for one of the next.
    if (this.#waiting.length > 0)
      void this.#open().then(
        () => this.#refill(),
        (error) => this.#giveUp(error),
      );
  }

  #giveUp(error: unknown): void {
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
  }

  async #destroy(housing: Housing): Promise<void> {
    this.#retire(housing);
    try {
      await housing.container.destroy();
      this.#housings.delete(housing);
    } catch (error) {
      this.#options.log(`a container of functions could not be removed: ${String(error)}`);
    }
  }

  #count(change: 1 | -1): void {
    const now = this.#options.clock.now();
    this.#inUse += change;
    this.#usedAtMs = now;
    if (this.#inUse >= this.#peak) this.#peakAtMs = now;
    else if (now - this.#peakAtMs > FORGET_PEAK_MS) {
      this.#peak = Math.ceil(this.#peak / 2);
      this.#peakAtMs = now;
    }
    this.#peak = Math.max(this.#peak, this.#inUse);
  }
}
