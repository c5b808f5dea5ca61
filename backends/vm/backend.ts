import { existsSync, rmSync } from "node:fs";
import type { Backend, Handle, Inventory, Place } from "#core/backend.ts";
import type { Computers } from "#core/computers.ts";
import type { GuestLink } from "#core/guest.ts";
import type { EdgeId, SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Usage } from "#core/usage.ts";
import { makeCgroups } from "#host/cgroup/make.ts";
import { uidBaseOf } from "#host/id-ranges.ts";
import type { Computer } from "#host/vmm/computer.ts";
import { handleOf, processOf } from "#host/vmm/handle.ts";
import { FOOTPRINT } from "#host/vmm/inventory.ts";
import { type Ground, Machines } from "#host/vmm/machines.ts";
import { machineMemory } from "#host/vmm/process-memory.ts";
import { openComputers } from "#host/vmm/qemu/computers.ts";
import { liveProcess, lostMachine } from "#host/vmm/qemu/process.ts";
import { isSaved } from "#host/vmm/saved.ts";
import type { Accelerator, MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { LayerMounts } from "#images/layers/mounts.ts";
import type { LayerStore } from "#images/store.ts";
import type { LayerSupply } from "#images/supply.ts";
import { checkSpec, monitorLimits, processorsOf } from "./check.ts";
import type { VmConfig } from "./config.ts";
import { ComputerCopies } from "./copies.ts";
import { diskBytes, makeStorage, type Origin, type Storage, storageIn } from "./disk.ts";
import { computersOver, heldMark, LiveComputer } from "./live.ts";
import { ComputerPacking } from "./packing.ts";
import { ComputerPauses } from "./pauses.ts";
import { checkHost } from "./probe.ts";
import type { PlannedComputer } from "./saving.ts";

/** What one node's full virtual machines are made of and where. */
export interface VmOptions {
  readonly edge: EdgeId;
  readonly dataDir: string;
  readonly runDir: string;
  readonly supply: Pick<LayerSupply, "metadata">;
  readonly mounts: Pick<LayerMounts, "acquire">;
  /** Takes the images of disks that are packed. */
  readonly store: LayerStore;
  /** As containers have it: a monitor takes the first id of its sandbox's range. */
  readonly firstUid: number;
  /** What runs processors on this node. */
  readonly accelerator: () => Promise<Accelerator>;
  readonly config: VmConfig;
  /** Gets what people should know: a line without its end. */
  readonly log: (line: string) => void;
}

/**
 * Full virtual machines: a monitor each, with a disk of its own over the image that it began with. Opens what it needs when the first is asked for.
 * Disposing leaves sandboxes alive.
 */
export function openVmBackend(options: VmOptions): Backend {
  return new VmBackend(options);
}

class VmBackend implements Backend {
  readonly kind = "vm";
  readonly footprint = FOOTPRINT;
  readonly foresight = 0;
  readonly computers: Computers;
  readonly pausing: ComputerPauses;
  readonly copying: ComputerCopies;
  readonly packing: ComputerPacking;
  readonly #options: VmOptions;
  readonly #machines: Machines<LiveComputer>;
  readonly #reaching = new Map<SandboxId, Promise<LiveComputer>>();

  constructor(options: VmOptions) {
    this.#options = options;
    this.#machines = new Machines({
      ...options,
      plural: "full VMs",
      names: { machines: "computers", disks: "computer-disks", cgroups: "full" },
      volumeMiB: options.config.vmVolumeSize,
    });
    const { instants } = this.#machines;
    this.computers = computersOver((id) => this.#find(id));
    const parts = {
      ground: () => this.#ground(),
      computer: (spec: SandboxSpec) => this.#planned(spec),
      reach: (id: SandboxId, process: MachineProcess) => this.#reach(id, process),
    };
    this.copying = new ComputerCopies({ ...parts, instants });
    const diskBytesOf = async (spec: SandboxSpec) => diskBytes(spec, (await this.#origin(spec)).imageDir);
    this.packing = new ComputerPacking({ ...parts, instants, store: options.store, diskBytes: diskBytesOf });
    this.pausing = new ComputerPauses({
      ...parts,
      place: (spec, place) => this.#place(spec, place),
      kill: (id) => this.kill(id),
      keepCopy: (spec) => this.copying.keep(spec),
    });
  }

  expect(): void {}

  async check(spec: SandboxSpec): Promise<void> {
    checkHost(checkSpec(spec, (await this.#ground()).cgroups));
    await this.#options.supply.metadata(spec.layers);
  }

  async create(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    signal.throwIfAborted();
    checkSpec(spec, (await this.#ground()).cgroups);
    const earlier = await this.#machines.claim(spec.id, this.#release);
    if (earlier !== undefined) return handleOf(spec.id, earlier, await this.#options.accelerator());
    try {
      const live = await this.#start(spec, place, signal);
      await this.copying.release(spec.id);
      signal.throwIfAborted();
      return handleOf(spec.id, live.computer.process, await this.#options.accelerator());
    } catch (error) {
      await this.destroy(spec.id);
      signal.throwIfAborted();
      throw roomError(error);
    }
  }

  async connect(handle: Handle, signal: AbortSignal): Promise<GuestLink> {
    const process = liveProcess(handle.id, processOf(handle));
    signal.throwIfAborted();
    return (await this.#reach(handle.id, process)).link();
  }

  recover(handle: Handle): Promise<Handle | undefined> {
    return this.#machines.recover(handle);
  }

  kill(id: SandboxId): Promise<void> {
    return this.#machines.kill(id);
  }

  destroy(id: SandboxId): Promise<void> {
    return this.#machines.destroy(id, this.#release);
  }

  /** Of the monitor: what happens inside is its system's to count. */
  async usage(handle: Handle): Promise<Usage> {
    const { cgroups, volume } = await this.#ground();
    const { cpu, memory } = cgroups.usage(handle.id);
    const process = processOf(handle);
    return {
      cpu,
      memory,
      oomKills: 0,
      oomVictims: [],
      pids: 0,
      diskBytes: volume.usage(handle.id),
      io: undefined,
      network: undefined,
      machine: process === undefined ? undefined : await machineMemory(process),
    };
  }

  inventory(): Promise<Inventory> {
    return this.#machines.inventory();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#machines[Symbol.asyncDispose]();
  }

  readonly #release = (id: SandboxId) => this.copying.release(id);

  #ground(): Promise<Ground> {
    return this.#machines.ground();
  }

  async #start(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<LiveComputer> {
    const { runDirs } = await this.#ground();
    const where = await this.#place(spec, place);
    const { computer, go } = await this.#started(spec, { ...where, copied: place.copied }, signal);
    try {
      const live = await LiveComputer.reach(computer, where.dir, await this.#options.accelerator());
      await go();
      runDirs.writeProcess(spec.id, computer.process);
      this.#machines.live.set(spec.id, live);
      return live;
    } catch (error) {
      await computer.end();
      throw error;
    }
  }

  /** A monitor, and what lets its computer begin, or go on. */
  async #started(
    spec: SandboxSpec,
    place: MachinePlace & Pick<Place, "copied">,
    signal: AbortSignal,
  ): Promise<{ readonly computer: Computer; readonly go: () => Promise<void> }> {
    const planned = place.copied !== undefined ? await this.#planned(spec) : await this.#made(spec);
    signal.throwIfAborted();
    const copy = place.copied !== undefined ? await this.copying.start(spec, planned, place, signal) : undefined;
    if (copy !== undefined) {
      const { computer, isOff } = copy;
      return { computer, go: () => (isOff ? Promise.resolve() : computer.goOn()) };
    }
    const computer = await planned.maker.start(planned.spec, place, signal);
    return { computer, go: () => computer.reset() };
  }

  async #made(spec: SandboxSpec): Promise<PlannedComputer> {
    const origin = await this.#origin(spec);
    return await this.#computer(spec, await makeStorage((await this.#ground()).volume, spec, origin));
  }

  /** Over the disk that it has. */
  async #planned(spec: SandboxSpec): Promise<PlannedComputer> {
    const origin = await this.#origin(spec);
    const { upperDir } = (await this.#ground()).volume.openUpper(spec.id);
    return await this.#computer(spec, storageIn(upperDir, spec, origin));
  }

  async #origin(spec: SandboxSpec): Promise<Origin> {
    const shape = checkSpec(spec, (await this.#ground()).cgroups);
    const [imageDir = ""] = await this.#options.mounts.acquire(spec.layers);
    return { shape, imageDir };
  }

  async #computer(spec: SandboxSpec, storage: Storage): Promise<PlannedComputer> {
    const shape = checkSpec(spec, (await this.#ground()).cgroups);
    const accelerator = await this.#options.accelerator();
    const limits = { processors: processorsOf(spec), memoryMiB: spec.resources.memoryMiB };
    return { maker: openComputers(), spec: { accelerator, ...shape, ...limits, ...storage, saved: undefined } };
  }

  /** Where the monitor of a sandbox runs; makes its cgroups. */
  async #place(spec: SandboxSpec, place: Place): Promise<MachinePlace> {
    const { runDirs, cgroups } = await this.#ground();
    return {
      dir: runDirs.dir(spec.id),
      uid: uidBaseOf(place, this.#options.firstUid),
      cgroups: makeCgroups(cgroups.plan(spec.id, monitorLimits(spec))),
    };
  }

  async #find(id: SandboxId): Promise<LiveComputer> {
    const process = liveProcess(id, (await this.#ground()).runDirs.readProcess(id));
    return this.#reach(id, process);
  }

  /** One that runs: this process talks to it, or begins to, once however many wait. */
  async #reach(id: SandboxId, process: MachineProcess): Promise<LiveComputer> {
    const known = this.#machines.live.get(id);
    if (known?.isOpen === true) return known;
    const reaching = this.#reaching.get(id) ?? this.#adopt(id, process).finally(() => this.#reaching.delete(id));
    this.#reaching.set(id, reaching);
    return reaching;
  }

  async #adopt(id: SandboxId, process: MachineProcess): Promise<LiveComputer> {
    const { runDirs, volume } = await this.#ground();
    const dir = runDirs.dir(id);
    const computer = await openComputers().adopt({ dir }, process);
    if (computer === undefined) throw lostMachine(id);
    // Held by a process that is gone, or on its way out of a pause.
    if (existsSync(heldMark(dir)) && !isSaved(volume.openUpper(id).upperDir)) {
      await computer.goOn();
      rmSync(heldMark(dir), { force: true });
    }
    const live = await LiveComputer.reach(computer, dir, await this.#options.accelerator());
    this.#machines.live.set(id, live);
    return live;
  }
}
