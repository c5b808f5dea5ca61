import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { hasCode } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { makeOwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import { savedFiles } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineSpec, Vmm } from "#host/vmm/vmm.ts";
import { diskIn, formatDisk } from "./disk.ts";
import { type DiskPlan, planDisks } from "./disks.ts";
import { evict, placeWhole } from "./kept.ts";
import { startGuest } from "./live.ts";
import { type LayerFiles, type LayerRegions, pathsOf, regionNames } from "./regions.ts";
import { saveMachine } from "./saving.ts";

/** What templates of environments are made with and where. */
export interface EnvironmentParts {
  readonly vmm: Vmm;
  /** Keeps them, on the file system of the disks; undefined: none are made. */
  readonly dir: string | undefined;
  /** Where machines run that become templates: their sockets need short paths. */
  readonly place: MachinePlace;
  readonly regions: LayerRegions;
  /** Of layers that can be: else disks. */
  readonly wantsRegions: boolean;
  /** A machine of the sandbox's shape that has been told nothing yet; one with regions has not even booted. */
  machine(spec: SandboxSpec, plan: DiskPlan): Promise<MachineSpec>;
  /** Of that machine. */
  identity(spec: SandboxSpec, plan: DiskPlan): string;
  readonly log: (line: string) => void;
}

const PREFIX = "build-";
/** Each takes some tens of MiB of disk: what was written over the template of its machine. */
const MOST_ENVIRONMENTS = 32;
/** As long as it takes to boot, on a machine that has much else to do. */
const MAKE_LIMIT_MS = 120_000;
/** Beside a saved machine: names of the copies that it maps. */
const REGIONS_FILE = "regions.json";
const MIB = 1024 * 1024;
/** Nobody's name: each sandbox gets its own before it runs. */
const HOSTNAME = "sandbox";

/** A sandbox that machines are made for, and the devices they have over a disk. */
interface Wanted {
  readonly spec: SandboxSpec;
  readonly layers: LayerFiles;
  plan(upper: string): DiskPlan;
}

/**
 * Machines that were saved with a sandbox in them that nothing has run in: layers, disk, limits, agent. A sandbox of the same environment and limits
 * goes on from there with a name, a clock and randomness of its own. One is made when the same is asked for a second time.
 */
export class Environments {
  readonly #parts: EnvironmentParts;
  readonly #underWay = new Map<string, Promise<string>>();
  readonly #asked = new Set<string>();
  /** Those with regions that did not come about: once is enough. */
  readonly #failed = new Set<string>();

  /** Sweeps what a dead process left half made. */
  static async open(parts: EnvironmentParts): Promise<Environments> {
    if (parts.dir !== undefined) {
      mkdirSync(parts.dir, { recursive: true, mode: 0o700 });
      await sweepOwnedTemps(parts.dir, PREFIX);
    }
    return new Environments(parts);
  }

  /** Use `open`. */
  constructor(parts: EnvironmentParts) {
    this.#parts = parts;
  }

  /** The directory of a saved machine that a sandbox like this can go on from; undefined where it has to be made from the start. */
  async find(spec: SandboxSpec, layers: LayerFiles): Promise<string | undefined> {
    const { dir, regions } = this.#parts;
    if (dir === undefined) return undefined;
    const asRegions: Wanted = { spec, layers, plan: (upper) => regions.plan(layers, upper) };
    if (this.#parts.wantsRegions && regions.fits(layers)) {
      const key = this.#key(asRegions);
      if (!this.#failed.has(key)) return await this.#findOne(join(dir, key), asRegions);
    }
    const asDisks = { spec, layers, plan: (upper: string) => planDisks(pathsOf(layers), upper) };
    return await this.#findOne(join(dir, this.#key(asDisks)), asDisks);
  }

  async #findOne(target: string, wanted: Wanted): Promise<string | undefined> {
    const key = basename(target);
    if (!existsSync(target)) {
      const isSecond = this.#asked.has(key);
      this.#asked.add(key);
      if (!isSecond) return undefined;
      const making = this.#underWay.get(key) ?? this.#make(wanted, target);
      this.#underWay.set(key, making);
      try {
        await making.finally(() => this.#underWay.delete(key));
      } catch (error) {
        if (wanted.plan("").regions.length === 0) throw error;
        this.#failed.add(key);
        this.#parts.log(`layers become disks of machines, since they cannot be their memory: ${error}`);
        return undefined;
      }
    }
    utimesSync(target, new Date(), new Date());
    return target;
  }

  /** All that is the same in sandboxes which can go on from the same machine. */
  #key({ spec, plan }: Wanted): string {
    const identity = this.#parts.identity(spec, plan(""));
    const shape = JSON.stringify([identity, spec.layers, spec.resources, spec.rlimits]);
    return createHash("sha256").update(shape).digest("hex").slice(0, 32);
  }

  async #make({ spec, layers, plan: planFor }: Wanted, target: string): Promise<string> {
    const { vmm, place, regions, log } = this.#parts;
    await using build = makeOwnedTemp(join(target, ".."), PREFIX);
    const whole = join(build.path, "whole");
    mkdirSync(whole);
    await formatDisk(diskIn(whole), spec);
    const plan = planFor(diskIn(whole));
    const machine = await this.#machine(spec, plan, whole);
    const names = plan.regions.length === 0 ? [] : regionNames(layers);
    if (names.length > 0) await regions.make(layers);
    writeFileSync(join(whole, REGIONS_FILE), JSON.stringify(names));
    const own = { ...place, dir: join(place.dir, build.path.slice(-6)) };
    mkdirSync(own.dir, { recursive: true, mode: 0o700 });
    const nobody = { ...spec, id: `template-${build.path.slice(-6)}` as SandboxId, hostname: HOSTNAME };
    try {
      const parts = { vmm, machine, place: own, log };
      const guest = await startGuest({ spec: nobody, ...plan }, parts, AbortSignal.timeout(MAKE_LIMIT_MS));
      try {
        await guest.hold();
        const planned = { spec: machine, identity: this.#parts.identity(spec, plan) };
        await saveMachine(guest, planned, whole);
      } finally {
        await guest.end();
      }
    } finally {
      rmSync(own.dir, { recursive: true, force: true });
    }
    placeWhole(whole, target);
    evict(join(target, ".."), { most: MOST_ENVIRONMENTS, but: PREFIX });
    regions.keep(new Set(readdirSync(join(target, "..")).flatMap((name) => namesIn(join(target, "..", name)))));
    return target;
  }

  /** One that has yet to boot has its memory where it is to be saved. */
  async #machine(spec: SandboxSpec, plan: DiskPlan, dir: string): Promise<MachineSpec> {
    const machine = await this.#parts.machine(spec, plan);
    if (machine.memory.file !== undefined) return machine;
    const path = savedFiles(dir).memory;
    const fd = openSync(path, "wx", 0o600);
    ftruncateSync(fd, machine.memory.sizeMiB * MIB);
    closeSync(fd);
    return { ...machine, memory: { ...machine.memory, file: { path, access: "private" } } };
  }
}

function namesIn(dir: string): readonly string[] {
  try {
    return JSON.parse(readFileSync(join(dir, REGIONS_FILE), "utf8")) as readonly string[];
  } catch (error) {
    // Of an earlier release, or just gone.
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
}
