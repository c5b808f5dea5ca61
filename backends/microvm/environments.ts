import { createHash } from "node:crypto";
import { existsSync, mkdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { makeOwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import type { MachinePlace, MachineSpec, Vmm } from "#host/vmm/vmm.ts";
import { diskIn, formatDisk } from "./disk.ts";
import { type DiskPlan, planDisks } from "./disks.ts";
import { evict, placeWhole } from "./kept.ts";
import { startGuest } from "./live.ts";
import { saveMachine } from "./saving.ts";

/** What templates of environments are made with and where. */
export interface EnvironmentParts {
  readonly vmm: Vmm;
  /** Keeps them, on the file system of the disks; undefined: none are made. */
  readonly dir: string | undefined;
  /** Where machines run that become templates: their sockets need short paths. */
  readonly place: MachinePlace;
  /** A machine of the sandbox's shape that has been told nothing yet. */
  machine(spec: SandboxSpec, plan: DiskPlan): Promise<MachineSpec>;
  /** Of that machine. */
  identity(spec: SandboxSpec, plan: DiskPlan): string;
  readonly log: (line: string) => void;
}

const PREFIX = "build-";
/** Each takes some tens of MiB of disk: what was written over the template of its machine. */
const MOST_ENVIRONMENTS = 32;
/** As long as it takes to boot, on a machine that has much else to do. */
const MAKE_LIMIT_MS = 60_000;
/** Nobody's name: each sandbox gets its own before it runs. */
const HOSTNAME = "sandbox";

/**
 * Machines that were saved with a sandbox in them that nothing has run in: layers, disk, limits, agent. A sandbox of the same environment and limits
 * goes on from there with a name, a clock and randomness of its own. One is made when the same is asked for a second time.
 */
export class Environments {
  readonly #parts: EnvironmentParts;
  readonly #underWay = new Map<string, Promise<string>>();
  readonly #asked = new Set<string>();

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
  async find(spec: SandboxSpec, layers: readonly (readonly string[])[]): Promise<string | undefined> {
    const { dir } = this.#parts;
    if (dir === undefined) return undefined;
    const key = this.#key(spec, layers);
    const target = join(dir, key);
    if (!existsSync(target)) {
      const isSecond = this.#asked.has(key);
      this.#asked.add(key);
      if (!isSecond) return undefined;
      const making = this.#underWay.get(key) ?? this.#make(spec, layers, target);
      this.#underWay.set(key, making);
      await making.finally(() => this.#underWay.delete(key));
    }
    utimesSync(target, new Date(), new Date());
    return target;
  }

  /** All that is the same in sandboxes which can go on from the same machine. */
  #key(spec: SandboxSpec, layers: readonly (readonly string[])[]): string {
    const identity = this.#parts.identity(spec, planDisks(layers, ""));
    const shape = JSON.stringify([identity, spec.layers, spec.resources, spec.rlimits]);
    return createHash("sha256").update(shape).digest("hex").slice(0, 32);
  }

  async #make(spec: SandboxSpec, layers: readonly (readonly string[])[], target: string): Promise<string> {
    const { vmm, place, log } = this.#parts;
    await using build = makeOwnedTemp(join(target, ".."), PREFIX);
    const whole = join(build.path, "whole");
    mkdirSync(whole);
    await formatDisk(diskIn(whole), spec);
    const plan = planDisks(layers, diskIn(whole));
    const machine = await this.#parts.machine(spec, plan);
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
    return target;
  }
}
