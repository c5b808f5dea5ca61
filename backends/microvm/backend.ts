import { join } from "node:path";
import type { Backend, Handle, Inventory, Place } from "#core/backend.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { EdgeId, SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Usage } from "#core/usage.ts";
import type { MachineUsage } from "#guest/protocol/machine.ts";
import { makeCgroups } from "#host/cgroup/make.ts";
import { uidBaseOf } from "#host/id-ranges.ts";
import { type GuestPrograms, guestImage } from "#host/vmm/guest/image.ts";
import { handleOf, processOf } from "#host/vmm/handle.ts";
import { FOOTPRINT } from "#host/vmm/inventory.ts";
import { type Ground, Machines } from "#host/vmm/machines.ts";
import { machineMemory } from "#host/vmm/process-memory.ts";
import { isAlive, liveProcess, lostMachine } from "#host/vmm/qemu/process.ts";
import { openQemu } from "#host/vmm/qemu/qemu.ts";
import { savedRegions } from "#host/vmm/saved.ts";
import type { Accelerator, MachinePlace, MachineProcess, Vmm } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { LayerMounts } from "#images/layers/mounts.ts";
import type { LayerStore } from "#images/store.ts";
import type { LayerSupply } from "#images/supply.ts";
import { checkSpec, HELPER_PIDS, monitorLimits } from "./check.ts";
import { guestDirOf, type MicrovmConfig } from "./config.ts";
import { MachineCopies } from "./copies.ts";
import { copyDisk, diskIn, diskPath, makeDisk } from "./disk.ts";
import { type DiskPlan, planDisks } from "./disks.ts";
import { Environments } from "./environments.ts";
import { GuestKills } from "./guest-kills.ts";
import { provenLender } from "./lender.ts";
import { adoptGuest, type Guest, startGuest } from "./live.ts";
import { MachinePacking } from "./packing.ts";
import { MachinePauses } from "./pauses.ts";
import { chooseAccelerator } from "./probe.ts";
import { hasRegionMark, type LayerFiles, LayerRegions, pathsOf, regionNotesMiB } from "./regions.ts";
import { type PlannedMachine, startSaved } from "./saving.ts";
import { machineMemoryMiB, processorsOf } from "./sizes.ts";
import { type MachineShape, Templates } from "./templates.ts";

/** What one node's machines are made of and where. */
export interface MicrovmOptions {
  readonly edge: EdgeId;
  readonly dataDir: string;
  readonly runDir: string;
  readonly binaries: GuestPrograms & { readonly lender: string };
  /** Takes layers that sandboxes are packed into. */
  readonly store: LayerStore;
  readonly supply: Pick<LayerSupply, "metadata">;
  readonly mounts: Pick<LayerMounts, "files">;
  /** As containers have it: a machine's process takes the first id of its sandbox's range. */
  readonly firstUid: number;
  readonly config: MicrovmConfig;
  /** Gets what people should know: a line without its end. */
  readonly log: (line: string) => void;
}

/**
 * Machines: a monitor each, with a disk of its own and the layers of its environment. Opens what it needs when the first is asked for, so
 * that a node without machines has nothing of them. Disposing leaves sandboxes alive.
 */
export function openMicrovmBackend(options: MicrovmOptions): MicrovmBackend {
  return new MicrovmBackend(options);
}

/** What new machines need. */
interface Factory {
  readonly accelerator: Accelerator;
  readonly vmm: Vmm;
  readonly templates: Templates;
  readonly environments: Environments;
  readonly regions: LayerRegions;
}

class MicrovmBackend implements Backend {
  readonly kind = "microvm";
  readonly footprint = FOOTPRINT;
  readonly foresight = 0;
  readonly #options: MicrovmOptions;
  readonly #machines: Machines<Guest>;
  readonly #kills = new Map<SandboxId, GuestKills>();
  readonly pausing: MachinePauses;
  readonly copying: MachineCopies;
  readonly packing: MachinePacking;
  #factoryOpened: Promise<Factory> | undefined;

  constructor(options: MicrovmOptions) {
    this.#options = options;
    this.#machines = new Machines({
      ...options,
      plural: "machines",
      names: { machines: "machines", disks: "machine-disks", cgroups: "vm" },
      volumeMiB: options.config.machineVolumeSize,
    });
    const { instants } = this.#machines;
    const parts = {
      ground: () => this.#ground(),
      machine: (spec: SandboxSpec, place: Place, savedDir?: string) => this.#planned(spec, place, savedDir),
      guest: (id: SandboxId, process: MachineProcess, signal: AbortSignal) => this.#guest(id, process, signal),
    };
    this.copying = new MachineCopies({ ...parts, instants });
    this.packing = new MachinePacking({ ...parts, instants, store: options.store });
    this.pausing = new MachinePauses({
      ...parts,
      place: (spec, place) => this.#place(spec, place),
      keep: (id, guest) => this.#machines.live.set(id, guest),
      keepCopy: (spec) => this.copying.keep(spec),
      kill: (id) => this.kill(id),
      log: options.log,
    });
  }

  expect(): void {}

  /** What runs processors on this node. A trial, where one is needed, is run as the user `uid`. */
  async accelerator(uid: number): Promise<Accelerator> {
    const { accelerator } = this.#options.config;
    return accelerator === "tcg" ? accelerator : (await this.#factory(uid)).accelerator;
  }

  async check(spec: SandboxSpec): Promise<void> {
    await openQemu();
    checkSpec(spec, (await this.#ground()).cgroups);
    await this.#options.supply.metadata(spec.layers);
  }

  async create(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    signal.throwIfAborted();
    checkSpec(spec, (await this.#ground()).cgroups);
    const earlier = await this.#machines.claim(spec.id, this.#release);
    if (earlier !== undefined) return handleOf(spec.id, earlier, await this.accelerator(this.#uid(place)));
    try {
      const guest = await this.#boot(spec, place, signal);
      await this.copying.release(spec.id);
      signal.throwIfAborted();
      return handleOf(spec.id, guest.machine.process, await this.accelerator(this.#uid(place)));
    } catch (error) {
      await this.destroy(spec.id);
      signal.throwIfAborted();
      throw roomError(error);
    }
  }

  async connect(handle: Handle, signal: AbortSignal): Promise<GuestLink> {
    const process = liveProcess(handle.id, processOf(handle));
    try {
      return await (await this.#guest(handle.id, process, signal)).connect(signal);
    } catch (error) {
      if (isAlive(process) || signal.aborted) throw error;
      throw lostMachine(handle.id, error);
    }
  }

  recover(handle: Handle): Promise<Handle | undefined> {
    return this.#machines.recover(handle);
  }

  kill(id: SandboxId): Promise<void> {
    return this.#machines.kill(id);
  }

  destroy(id: SandboxId): Promise<void> {
    this.#kills.delete(id);
    return this.#machines.destroy(id, this.#release);
  }

  async usage(handle: Handle): Promise<Usage> {
    const { cgroups } = await this.#ground();
    const counted = cgroups.usage(handle.id);
    const process = processOf(handle);
    const inside = await this.#inside(handle.id).catch(nothingOfTheLost);
    return {
      cpu: counted.cpu,
      memory: { bytes: inside?.memoryBytes ?? 0, peakBytes: inside?.peakBytes ?? 0, swapBytes: 0 },
      oomKills: inside?.oomKills ?? 0,
      oomVictims: inside?.oomVictims ?? [],
      pids: Math.max(0, (inside?.pids ?? 0) - HELPER_PIDS),
      diskBytes: inside?.diskBytes,
      io: undefined,
      network: undefined,
      machine: process === undefined ? undefined : await machineMemory(process),
    };
  }

  async rest({ id }: Handle): Promise<boolean> {
    return (await this.#machines.live.get(id)?.rest()) ?? false;
  }

  inventory(): Promise<Inventory> {
    return this.#machines.inventory();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#machines[Symbol.asyncDispose]();
  }

  async #inside(id: SandboxId): Promise<(MachineUsage & Pick<Usage, "oomVictims">) | undefined> {
    const guest = this.#machines.live.get(id);
    if (guest === undefined) return undefined;
    const counted = await guest.usage();
    // Of one that is removed meanwhile nothing is kept.
    if (counted.oomKills === 0 || this.#machines.live.get(id) !== guest) return { ...counted, oomVictims: [] };
    const kills = this.#kills.get(id) ?? new GuestKills();
    this.#kills.set(id, kills);
    return { ...counted, oomVictims: await kills.victims(guest, counted.oomKills) };
  }

  readonly #release = (id: SandboxId) => this.copying.release(id);

  #ground(): Promise<Ground> {
    return this.#machines.ground();
  }

  /** Made once however many wait for it; made anew after it failed. */
  #factory(uid: number): Promise<Factory> {
    this.#factoryOpened ??= this.#openFactory(uid).catch((error: unknown) => {
      this.#factoryOpened = undefined;
      throw error;
    });
    return this.#factoryOpened;
  }

  async #openFactory(uid: number): Promise<Factory> {
    const { binaries, config, runDir, log } = this.#options;
    const guestDir = guestDirOf(config, this.#options.dataDir);
    const { cgroups, volume } = await this.#ground();
    const vmm = await openQemu();
    const image = await guestImage(guestDir, binaries);
    const place = {
      dir: join(runDir, "machine-templates"),
      uid,
      cgroups: cgroups.agentDirs.map((dir) => join(dir, "cgroup.procs")),
    };
    const trial = { vmm, image, place: { ...place, dir: join(place.dir, "trial") } };
    const accelerator = await chooseAccelerator(config.accelerator, trial, log);
    const lender = await provenLender(binaries.lender, log);
    const dir = join(guestDir, "templates");
    const shared = (name: string) => (volume.sharedDir === undefined ? undefined : join(volume.sharedDir, name));
    const templates = await Templates.open({
      ...{ vmm, image, accelerator, lender, dir, place },
      nearDir: shared("templates"),
    });
    const regions = await LayerRegions.open(shared("regions"));
    const environments = await Environments.open({
      ...{ vmm, place, log, regions, wantsRegions: config.machineLayers === "shared", dir: shared("environments") },
      machine: async (spec, plan) => {
        const shape = shapeOf(spec, plan);
        const machine = plan.regions.length > 0 ? templates.coldMachine(shape) : await templates.machine(shape);
        return { ...machine, disks: plan.disks, regions: plan.regions };
      },
      identity: (spec, plan) => templates.identity(templates.coldMachine(shapeOf(spec, plan))),
    });
    return { accelerator, vmm, templates, environments, regions };
  }

  async #boot(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Guest> {
    const { runDirs } = await this.#ground();
    const guest =
      place.copied !== undefined ? await this.#copied(spec, place, signal) : await this.#made(spec, place, signal);
    runDirs.writeProcess(spec.id, guest.machine.process);
    this.#machines.live.set(spec.id, guest);
    return guest;
  }

  async #made(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Guest> {
    const { volume } = await this.#ground();
    const { environments } = await this.#factory(this.#uid(place));
    const instant = await environments.find(spec, await this.#layerFiles(spec));
    signal.throwIfAborted();
    if (instant === undefined) return await this.#launch(spec, place, await makeDisk(volume, spec), signal);
    await copyDisk(volume, spec, diskIn(instant));
    return await this.#goOn(spec, place, instant, signal);
  }

  /** Over a copy of another one's disk. */
  async #copied(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Guest> {
    const { volume } = await this.#ground();
    const { dir, saved } = this.copying.instantOf(spec.id);
    if (saved && place.copied === "all") return await this.#goOn(spec, place, dir, signal);
    return await this.#launch(spec, place, diskPath(volume.openUpper(spec.id)), signal);
  }

  /** Makes the sandbox, over a disk, in a machine that has been told nothing. */
  async #launch(spec: SandboxSpec, place: Place, disk: string, signal: AbortSignal): Promise<Guest> {
    const { vmm, templates } = await this.#factory(this.#uid(place));
    const plan = planDisks(pathsOf(await this.#layerFiles(spec)), disk);
    const machine = { ...(await templates.machine(shapeOf(spec, plan))), disks: plan.disks };
    signal.throwIfAborted();
    const parts = { vmm, machine, place: await this.#place(spec, place), log: this.#options.log };
    return await startGuest({ spec, ...plan }, parts, signal);
  }

  /** Makes it of a machine that was saved with a sandbox in it, over the disk that it has. */
  async #goOn(spec: SandboxSpec, place: Place, instant: string, signal: AbortSignal): Promise<Guest> {
    const planned = await this.#planned(spec, place, instant);
    const from = { dir: instant, hostname: spec.hostname, log: this.#options.log };
    const options = { started: () => undefined, signal };
    return await startSaved(spec.id, planned, { ...from, place: await this.#place(spec, place) }, options);
  }

  /** The machine that runs, or the one that is saved in `savedDir`. */
  async #planned(spec: SandboxSpec, place: Place, savedDir?: string): Promise<PlannedMachine> {
    const { volume, runDirs } = await this.#ground();
    const { vmm, templates, regions } = await this.#factory(this.#uid(place));
    const layers = await this.#layerFiles(spec);
    const hasRegions = savedDir === undefined ? hasRegionMark(runDirs.dir(spec.id)) : savedRegions(savedDir);
    const disk = diskPath(volume.openUpper(spec.id));
    const plan = hasRegions ? regions.plan(layers, disk) : planDisks(pathsOf(layers), disk);
    const cold = templates.coldMachine(shapeOf(spec, plan));
    return {
      ...{ vmm, spec: { ...cold, disks: plan.disks, regions: plan.regions }, identity: templates.identity(cold) },
      prepare: async () => (hasRegions ? await regions.make(layers) : undefined),
    };
  }

  #uid(place: Place): number {
    return uidBaseOf(place, this.#options.firstUid);
  }

  #layerFiles(spec: SandboxSpec): Promise<LayerFiles> {
    return Promise.all(spec.layers.map((digest) => this.#options.mounts.files(digest)));
  }

  /** Where the machine of a sandbox runs; makes its cgroups. */
  async #place(spec: SandboxSpec, place: Place): Promise<MachinePlace> {
    const { runDirs, cgroups } = await this.#ground();
    const limits = cgroups.plan(spec.id, monitorLimits(spec));
    return {
      dir: runDirs.dir(spec.id),
      uid: this.#uid(place),
      cgroups: makeCgroups(limits),
    };
  }

  async #guest(id: SandboxId, process: MachineProcess, signal: AbortSignal): Promise<Guest> {
    const known = this.#machines.live.get(id);
    if (known?.isOpen === true) return known;
    const { runDirs } = await this.#ground();
    const vmm = await openQemu();
    const guest = await adoptGuest(id, { vmm, dir: runDirs.dir(id), process, log: this.#options.log }, signal);
    this.#machines.live.set(id, guest);
    return guest;
  }
}

function shapeOf(spec: SandboxSpec, { disks, regions }: DiskPlan): MachineShape {
  const memoryMiB = machineMemoryMiB(spec) + regionNotesMiB(regions);
  return { memoryMiB, processors: processorsOf(spec), disks: disks.length, regions };
}

/** One that goes while it is asked uses nothing any more. */
function nothingOfTheLost(error: unknown): undefined {
  if (error instanceof SandboxError && error.kind === "SandboxLost") return undefined;
  throw error;
}
