import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { connectMachine } from "#guest/protocol/machine.ts";
import { makeOwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import type { GuestImage } from "#host/vmm/guest/image.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import {
  type Accelerator,
  MACHINE_PORTS,
  type MachinePlace,
  type MachineRegion,
  type MachineSpec,
  type Vmm,
} from "#host/vmm/vmm.ts";
import { emptyDisks } from "./disks.ts";
import { evict, placeWhole } from "./kept.ts";

/** What machines of one template have in common. */
export interface MachineShape {
  readonly memoryMiB: number;
  readonly processors: number;
  /** Places for disks. */
  readonly disks: number;
  readonly regions: readonly Pick<MachineRegion, "sizeBytes">[];
}

/** What a template is made with and where. */
export interface TemplateParts {
  readonly vmm: Vmm;
  readonly image: GuestImage;
  readonly accelerator: Accelerator;
  /** Where it works here: what lends machines the memory of their template. */
  readonly lender: string | undefined;
  /** Keeps templates; they outlive nodes. */
  readonly dir: string;
  /** Where machines that go on from them find them: what is saved of such a machine shares the data of its template there. Undefined: where they are kept. */
  readonly nearDir: string | undefined;
  /** Where machines run that become templates: their sockets need short paths. */
  readonly place: MachinePlace;
}

const MIB = 1024 * 1024;
/** The files of a template. */
const [MEMORY_FILE, SAVED_FILE] = ["memory", "devices"] as const;
const PREFIX = "build-";
/** A template takes some 100 MiB of disk: the memory that its guest has written. */
const MOST_TEMPLATES = 16;
/** A cold boot in software, on a machine that has much else to do. */
const BOOT_LIMIT_MS = 120_000;

/**
 * Machines that were booted and saved before they were told anything: no layer, no name, no agent. Each is made when it is first asked for,
 * once however many ask, and kept until others were used more lately. Another image, monitor or shape is another template.
 */
export class Templates {
  readonly #parts: TemplateParts;
  readonly #underWay = new Map<string, Promise<string>>();

  /** Sweeps what a dead process left half made. */
  static async open(parts: TemplateParts): Promise<Templates> {
    for (const dir of [parts.dir, parts.nearDir ?? parts.dir]) {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      await sweepOwnedTemps(dir, PREFIX);
    }
    return new Templates(parts);
  }

  /** Use `open`. */
  constructor(parts: TemplateParts) {
    this.#parts = parts;
  }

  /** A machine of this shape, without regions, up to its disks: what it starts from is saved. */
  async machine(shape: MachineShape): Promise<Omit<MachineSpec, "disks">> {
    const cold = this.coldMachine(shape);
    const kept = await this.#once(cold);
    // What was used last goes last.
    utimesSync(kept, new Date(), new Date());
    const dir = await this.#near(kept);
    const memory = { sizeMiB: shape.memoryMiB, file: { path: join(dir, MEMORY_FILE), access: "private" as const } };
    return { ...cold, memory, devices: join(dir, SAVED_FILE) };
  }

  /** The same machine before it has booted. */
  coldMachine({ memoryMiB, processors, disks, regions }: MachineShape): MachineSpec {
    const { accelerator, image, lender } = this.#parts;
    const { kernel, initramfs } = image;
    const memory = { sizeMiB: memoryMiB };
    const machine = { accelerator, processors, memory, kernel, initramfs, lender };
    const places = regions.map(({ sizeBytes }) => ({ file: undefined, sizeBytes }));
    return { ...machine, disks: emptyDisks(disks), regions: places, devices: undefined };
  }

  /** Names everything that must be equal in a machine for it to go on from what another has saved. */
  identity(spec: MachineSpec): string {
    return `${this.#parts.vmm.identity(spec)} ${this.#parts.image.digest}`;
  }

  #once(spec: MachineSpec): Promise<string> {
    const { dir } = this.#parts;
    const key = createHash("sha256").update(this.identity(spec)).digest("hex").slice(0, 32);
    const running = this.#underWay.get(key);
    if (running !== undefined) return running;
    const target = join(dir, key);
    if (existsSync(target)) return Promise.resolve(target);
    const making = this.#make(spec, target).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, making);
    return making;
  }

  /** Makes a copy near the disks, once however many ask. */
  #near(kept: string): Promise<string> {
    const { nearDir } = this.#parts;
    if (nearDir === undefined) return Promise.resolve(kept);
    const target = join(nearDir, basename(kept));
    const running = this.#underWay.get(target);
    if (running !== undefined) return running;
    if (existsSync(target)) return Promise.resolve(target);
    const making = this.#copy(kept, target).finally(() => this.#underWay.delete(target));
    this.#underWay.set(target, making);
    return making;
  }

  async #copy(kept: string, target: string): Promise<string> {
    const dir = dirname(target);
    await using build = makeOwnedTemp(dir, PREFIX);
    const whole = join(build.path, "whole");
    mkdirSync(whole);
    for (const name of [MEMORY_FILE, SAVED_FILE]) await copyFileSparse(join(kept, name), join(whole, name));
    placeWhole(whole, target);
    evict(dir, { most: MOST_TEMPLATES, but: PREFIX });
    return target;
  }

  async #make(spec: MachineSpec, target: string): Promise<string> {
    await using build = makeOwnedTemp(this.#parts.dir, PREFIX);
    const path = join(build.path, MEMORY_FILE);
    const fd = openSync(path, "wx", 0o600);
    ftruncateSync(fd, spec.memory.sizeMiB * MIB);
    closeSync(fd);
    const place = { ...this.#parts.place, dir: join(this.#parts.place.dir, build.path.slice(-6)) };
    mkdirSync(place.dir, { recursive: true, mode: 0o700 });
    try {
      const devices = await this.#bootAndSave(
        { ...spec, memory: { ...spec.memory, file: { path, access: "shared" } } },
        place,
      );
      writeFileSync(join(build.path, SAVED_FILE), devices, { mode: 0o600 });
    } finally {
      rmSync(place.dir, { recursive: true, force: true });
    }
    mkdirSync(`${build.path}/whole`);
    for (const name of [MEMORY_FILE, SAVED_FILE]) renameSync(join(build.path, name), join(build.path, "whole", name));
    placeWhole(join(build.path, "whole"), target);
    evict(this.#parts.dir, { most: MOST_TEMPLATES, but: PREFIX });
    return target;
  }

  async #bootAndSave(spec: MachineSpec, place: MachinePlace): Promise<Buffer> {
    const signal = AbortSignal.timeout(BOOT_LIMIT_MS);
    const machine = await this.#parts.vmm.start(spec, place, signal);
    try {
      await machine.run();
      (await connectMachine(join(place.dir, MACHINE_PORTS.control), signal)).close();
      await machine.pause();
      return await machine.saveDevices();
    } finally {
      await machine.end();
    }
  }
}
