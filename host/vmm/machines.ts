import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Handle, Inventory } from "#core/backend.ts";
import { Once } from "#core/concurrency/once.ts";
import { SandboxError } from "#core/errors.ts";
import type { EdgeId, SandboxId } from "#core/ids.ts";
import { type Cgroups, openCgroups } from "#host/cgroup/cgroups.ts";
import { openVolume, type Volume } from "#host/volume/volume.ts";
import { processOf } from "./handle.ts";
import { InstantDirs } from "./instants.ts";
import { takeInventory } from "./inventory.ts";
import { isAlive } from "./qemu/process.ts";
import { RunDirs } from "./run-dirs.ts";
import { isSaved } from "./saved.ts";
import type { MachineProcess } from "./vmm.ts";

/** What machines that exist need: a place for what is known of them, limits and disks. */
export interface Ground extends AsyncDisposable {
  readonly runDirs: RunDirs;
  readonly cgroups: Cgroups;
  readonly volume: Volume;
}

/** A machine that this process talks to. */
export interface TalkedTo {
  /** Stops talking to it; it runs on. */
  leave(): void;
  /** Ends it; safe twice. */
  end(): Promise<void>;
}

/** Machines of one kind on one node. */
export interface MachinesOptions {
  readonly edge: EdgeId;
  readonly dataDir: string;
  readonly runDir: string;
  /** What people call them: `full VMs`. */
  readonly plural: string;
  /** Of their directory below the data directory and of that below the run directory, of where their disks are mounted below that, and of their cgroups. */
  readonly names: { readonly machines: string; readonly disks: string; readonly cgroups: string };
  readonly volumeMiB: number;
  /** Gets what people should know: a line without its end. */
  readonly log: (line: string) => void;
}

/**
 * The machines of one kind on this node: what there is of each on the host, and those that this process talks to. Opens what it needs when the first is
 * asked for, so that a node without them has nothing of them. Disposing leaves them alive.
 */
export class Machines<T extends TalkedTo> implements AsyncDisposable {
  readonly live = new Map<SandboxId, T>();
  readonly instants: InstantDirs;
  readonly #options: MachinesOptions;
  readonly #dir: string;
  readonly #groundOnce: Once<Ground>;

  constructor(options: MachinesOptions) {
    this.#options = options;
    this.#dir = join(options.dataDir, options.names.machines);
    this.instants = new InstantDirs(this.#dir);
    this.#groundOnce = new Once(() => this.#open());
  }

  ground(): Promise<Ground> {
    return this.#groundOnce.get();
  }

  /**
   * Takes the id for a machine that is to be made, and removes what an earlier attempt has left; resolves with the process of one that is there. Rejects with `AlreadyExists` for
   * one that is dead and has its files.
   */
  async claim(id: SandboxId, release: (id: SandboxId) => Promise<void>): Promise<MachineProcess | undefined> {
    const { runDirs } = await this.ground();
    if (runDirs.make(id)) return undefined;
    const process = runDirs.readProcess(id);
    if (process !== undefined && isAlive(process)) return process;
    if (process !== undefined) {
      throw new SandboxError("AlreadyExists", `sandbox ${id} is dead and keeps its files`, {
        hint: "destroy it first",
      });
    }
    await this.destroy(id, release);
    runDirs.make(id);
    return undefined;
  }

  /** See `Backend.recover`. */
  async recover(handle: Handle): Promise<Handle | undefined> {
    const process = processOf(handle);
    if (process !== undefined) return isAlive(process) ? handle : undefined;
    const { volume } = await this.ground();
    return isSaved(volume.openUpper(handle.id).upperDir) ? handle : undefined;
  }

  /** See `Backend.kill`. */
  async kill(id: SandboxId): Promise<void> {
    if (!this.#hasTraces()) return;
    const { cgroups } = await this.ground();
    const live = this.live.get(id);
    this.live.delete(id);
    await live?.end();
    await cgroups.kill(id);
    await cgroups.remove(id);
  }

  /** See `Backend.destroy`; `release` lets go of what it would have begun with. */
  async destroy(id: SandboxId, release: (id: SandboxId) => Promise<void>): Promise<void> {
    if (!this.#hasTraces()) return;
    const { volume, runDirs } = await this.ground();
    await this.kill(id);
    await release(id);
    await volume.removeUpper(id);
    // Last: while it is there, the sandbox can be found.
    runDirs.remove(id);
  }

  /** See `Backend.inventory`. */
  async inventory(): Promise<Inventory> {
    return takeInventory(this.#hasTraces() ? await this.ground() : undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const live of this.live.values()) live.leave();
    this.live.clear();
    await (await this.#groundOnce.release())?.[Symbol.asyncDispose]();
  }

  /** False: none was ever made here. */
  #hasTraces(): boolean {
    return this.#groundOnce.isAsked || existsSync(this.#dir);
  }

  async #open(): Promise<Ground> {
    const { edge, runDir, names, plural, volumeMiB, log } = this.#options;
    const runDirs = new RunDirs(runDir, names.machines);
    await using opened = new AsyncDisposableStack();
    const places = { dataDir: this.#dir, runDir: join(runDir, names.disks) };
    const volume = opened.use(await openVolume({ ...places, sizeMiB: volumeMiB }));
    if (volume.reason !== undefined) log(`disks of ${plural} lie in a plain directory: ${volume.reason}`);
    await this.instants.sweep(volume);
    const cgroups = opened.use(await openCgroups(`${edge}-${names.cgroups}`));
    // Machines that an earlier process was making templates of.
    await cgroups.killAgents();
    const kept = opened.move();
    return { runDirs, cgroups, volume, [Symbol.asyncDispose]: () => kept.disposeAsync() };
  }
}
