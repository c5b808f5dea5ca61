import {
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { makeOwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import { type MachineRegion, MOST_DISKS, REGION_STEP_BYTES } from "#host/vmm/vmm.ts";
import type { LayerFile } from "#images/layers/mounts.ts";
import { type DiskPlan, emptyDisks, UPPER_DISK } from "./disks.ts";

/** Files of each layer, lowest first, metadata first. */
export type LayerFiles = readonly (readonly LayerFile[])[];

const MIB = 1024 * 1024;
/** A guest's kernel keeps a page of notes for 64 pages: more than this would be more notes than many guests have memory. */
const MOST_BYTES = 2048 * MIB;
const NOTES_PART = 64;
/** Of the room that is left, copies that are only faster take no more than this part: the rest is for what sandboxes write. */
const ROOM_PART = 4;
const PREFIX = "build-";
/** A copy that nobody has asked for lately is not about to be mapped. */
const IDLE_MS = 10 * 60_000;
/** In the directory where a machine runs: its layers are regions. */
const MARK = "regions";

/**
 * Files of layers as the memory of machines. A region is a copy of its file that ends where a guest's kernel can map it, beside the disks, named by what it holds: all machines map the same
 * one, so that the host has each page once, and guests none. A copy that is gone is made again from the layer.
 */
export class LayerRegions {
  readonly #dir: string | undefined;
  readonly #freeBytes: (dir: string) => number;
  readonly #underWay = new Map<string, Promise<void>>();

  /** Sweeps what a dead process left half made. Without a directory nothing fits. `freeBytes` tells how much room there is where it is. */
  static async open(dir: string | undefined, freeBytes = freeBytesIn): Promise<LayerRegions> {
    if (dir !== undefined) {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      await sweepOwnedTemps(dir, PREFIX);
    }
    return new LayerRegions(dir, freeBytes);
  }

  /** Use `open`. */
  constructor(dir: string | undefined, freeBytes: (dir: string) => number) {
    this.#dir = dir;
    this.#freeBytes = freeBytes;
  }

  /**
   * Whether a machine can have these layers as regions: all of their data is here, not too much for the notes of its kernel, and copies that are not there yet leave sandboxes
   * the room for their disks.
   */
  fits(layers: LayerFiles): boolean {
    if (this.#dir === undefined) return false;
    const files = distinct(layers);
    const isWhole = files.every((file) => file.isWhole);
    if (!isWhole || bytesOf(files) > MOST_BYTES || files.length >= MOST_DISKS) return false;
    const missing = files.filter((file) => !this.#isThere(file));
    return missing.length === 0 || bytesOf(missing) <= this.#freeBytes(this.#dir) / ROOM_PART;
  }

  /** A machine with these layers as regions, and the upper as its only disk. */
  plan(layers: LayerFiles, upper: string): DiskPlan {
    const files = distinct(layers);
    const numbers = new Map(files.map(({ name }, number) => [name, number]));
    return {
      disks: emptyDisks(1).map((disk) => ({ ...disk, file: upper })),
      regions: files.map((file) => ({ file: this.#path(file), sizeBytes: regionBytes(file) })),
      layers: layers.map((parts) => parts.map(({ name }) => `pmem${numbers.get(name)}`)),
      upper: UPPER_DISK,
    };
  }

  /** Makes the copies that are not there; of a layer whose data is not all here, for a machine that was saved when it was, that waits for the data. */
  async make(layers: LayerFiles): Promise<void> {
    for (const file of distinct(layers)) {
      const running = this.#underWay.get(file.name);
      const making = running ?? this.#copy(file).finally(() => this.#underWay.delete(file.name));
      this.#underWay.set(file.name, making);
      await making;
    }
  }

  /** Removes copies that none of these names, and that nobody has asked for lately. Machines keep what they have mapped. */
  keep(names: ReadonlySet<string>): void {
    if (this.#dir === undefined) return;
    for (const name of readdirSync(this.#dir)) {
      const path = join(this.#dir, name);
      const isIdle = statSync(path).mtimeMs < Date.now() - IDLE_MS;
      if (isIdle && !name.startsWith(PREFIX) && !names.has(name)) rmSync(path, { force: true });
    }
  }

  async #copy(file: LayerFile): Promise<void> {
    const target = this.#path(file);
    if (this.#isThere(file)) return utimesSync(target, new Date(), new Date());
    await using build = makeOwnedTemp(join(target, ".."), PREFIX);
    const copy = join(build.path, "copy");
    if (file.isWhole) await copyFileSparse(file.path, copy);
    else await readAll(file, copy);
    await using made = await open(copy, "r+");
    await made.truncate(regionBytes(file));
    // Before it has its name: holes of a crash would read as zeros.
    await made.sync();
    renameSync(copy, target);
  }

  #isThere(file: LayerFile): boolean {
    return statSync(this.#path(file), { throwIfNoEntry: false })?.size === regionBytes(file);
  }

  #path({ name }: LayerFile): string {
    return join(this.#dir ?? "/", name);
  }
}

/** Where the files are. */
export function pathsOf(layers: LayerFiles): readonly (readonly string[])[] {
  return layers.map((parts) => parts.map(({ path }) => path));
}

/** Names of the copies that a machine with these layers maps. */
export function regionNames(layers: LayerFiles): readonly string[] {
  return distinct(layers).map(({ name }) => name);
}

/** What the kernel of a guest keeps about its regions, in its memory. */
export function regionNotesMiB(regions: readonly Pick<MachineRegion, "sizeBytes">[]): number {
  const bytes = regions.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  // QEMU takes memory in steps of two.
  return 2 * Math.ceil(bytes / NOTES_PART / (2 * MIB));
}

/** Says of the machine that runs in this directory whether it has regions. To be said before it starts. */
export function markRegions(runDir: string, hasRegions: boolean): void {
  // What a host keeps of live machines does not outlive it: one that goes on after that finds nothing.
  mkdirSync(runDir, { recursive: true, mode: 0o700 });
  if (hasRegions) writeFileSync(join(runDir, MARK), "");
  else rmSync(join(runDir, MARK), { force: true });
}

/** What was said of the machine in this directory. */
export function hasRegionMark(runDir: string): boolean {
  return existsSync(join(runDir, MARK));
}

/** Holes of a file that is filled as it is read look like those that are zeros: each byte is asked for. */
async function readAll({ path, name, sizeBytes }: LayerFile, to: string): Promise<void> {
  await using source = await open(path, "r");
  await using copy = await open(to, "wx", 0o600);
  const piece = Buffer.allocUnsafe(MIB);
  for (let at = 0; at < sizeBytes; ) {
    const { bytesRead } = await source.read(piece, 0, Math.min(MIB, sizeBytes - at), at);
    if (bytesRead === 0) throw new Error(`${name} ends at ${at} of ${sizeBytes} bytes`);
    await copy.writeFile(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}

function distinct(layers: LayerFiles): readonly LayerFile[] {
  return [...new Map(layers.flat().map((file) => [file.name, file])).values()];
}

function bytesOf(files: readonly LayerFile[]): number {
  return files.reduce((sum, file) => sum + regionBytes(file), 0);
}

function freeBytesIn(dir: string): number {
  const { bavail, bsize } = statfsSync(dir);
  return bavail * bsize;
}

function regionBytes({ sizeBytes }: LayerFile): number {
  return REGION_STEP_BYTES * Math.ceil(sizeBytes / REGION_STEP_BYTES);
}
