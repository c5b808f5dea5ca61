import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { makeOwnedTemp, type OwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import type { Computer } from "#host/vmm/computer.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import type { Volume } from "#host/volume/volume.ts";
import { answeredMark } from "./agent.ts";
import { copyWritten, roomError } from "./disk.ts";
import type { PauseParts } from "./pauses.ts";
import { type PlannedComputer, saveComputer, startSaved } from "./saving.ts";

/** What copies need of the backend. */
export interface CopyParts extends Pick<PauseParts, "ground" | "computer" | "reach"> {
  /** Where instants lie if the volume of disks has no place for what it shares. */
  readonly plainDir: string;
}

/** What a computer was at one moment, until all copies have begun with it or are gone. */
interface Instant {
  readonly temp: OwnedTemp;
  readonly left: Set<SandboxId>;
  /** False: its monitor did not run, and only its disk is there. */
  readonly isSaved: boolean;
  /** Its agent had answered: that of a copy is waited for. */
  readonly hasAgent: boolean;
}

/** Of the directories that hold what a computer was at one moment. */
export const INSTANT_PREFIX = "instant-";

//   hold still ─► copy of the disk ─► devices, memory, screen ─► let go ─► a disk for each copy ─► each starts a monitor from there
//
// All of them map one memory file privately: what they do not write they have once. It has no name any more when the last has begun.

/** Copies of computers, with what runs in them and what they show. */
export class ComputerCopies implements Copying {
  readonly copies = true;
  readonly processes = true;
  readonly packs = false;
  readonly #parts: CopyParts;
  readonly #instants = new Map<SandboxId, Instant>();

  constructor(parts: CopyParts) {
    this.#parts = parts;
  }

  async copy(spec: SandboxSpec, { to }: Copies, signal: AbortSignal): Promise<Copied> {
    const { volume } = await this.#parts.ground();
    if (!volume.list().has(spec.id)) throw new SandboxError("NotFound", `${spec.id} has no disk`);
    try {
      const temp = makeOwnedTemp(instantsDir(volume, this.#parts.plainDir), INSTANT_PREFIX);
      try {
        return await this.#copyTo(spec, to, temp, signal);
      } catch (error) {
        await temp[Symbol.asyncDispose]();
        throw error;
      }
    } catch (error) {
      throw roomError(error);
    }
  }

  /** When it rejects, only the directory is left. */
  async #copyTo(
    spec: SandboxSpec,
    to: readonly SandboxId[],
    temp: OwnedTemp,
    signal: AbortSignal,
  ): Promise<{ readonly frozenMs: number }> {
    const { runDirs, volume } = await this.#parts.ground();
    const process = runDirs.readProcess(spec.id);
    const isSaved = process !== undefined && isAlive(process);
    const hasAgent = existsSync(answeredMark(runDirs.dir(spec.id)));
    const frozenMs = isSaved ? await this.#save(spec, process, temp.path, signal) : 0;
    if (!isSaved) await copyWritten(volume.openUpper(spec.id).upperDir, temp.path);
    const begun: SandboxId[] = [];
    try {
      for (const id of to) {
        signal.throwIfAborted();
        begun.push(id);
        await copyWritten(temp.path, volume.createUpper(id, undefined).upperDir);
      }
    } catch (error) {
      for (const id of begun) await volume.removeUpper(id);
      throw error;
    }
    const instant = { temp, left: new Set(to), isSaved, hasAgent };
    for (const id of to) this.#instants.set(id, instant);
    return { frozenMs };
  }

  /**
   * Starts the computer of a copy, over the disk that it has; `undefined`: there is nothing but that disk, and it starts anew. Resolves before it goes on.
   * Throws `SandboxLost` for what is no copy, or has begun already.
   */
  async start(
    { id, hostname }: SandboxSpec,
    planned: PlannedComputer,
    place: MachinePlace,
    signal: AbortSignal,
  ): Promise<{ readonly computer: Computer; readonly isOff: boolean } | undefined> {
    const instant = this.#instants.get(id);
    if (instant === undefined) throw new SandboxError("SandboxLost", `what ${id} is a copy of is gone`);
    if (!instant.isSaved) return undefined;
    const started = await startSaved(id, planned, { dir: instant.temp.path, place, hostname }, signal);
    if (instant.hasAgent) writeFileSync(answeredMark(place.dir), "");
    return started;
  }

  /** The copy needs its instant no more: it has begun, or never will. Safe twice, and for what is no copy. */
  async release(id: SandboxId): Promise<void> {
    const instant = this.#instants.get(id);
    this.#instants.delete(id);
    instant?.left.delete(id);
    if (instant?.left.size === 0) await instant.temp[Symbol.asyncDispose]();
  }

  async #save(spec: SandboxSpec, process: MachineProcess, dir: string, signal: AbortSignal): Promise<number> {
    const { volume } = await this.#parts.ground();
    const planned = await this.#parts.computer(spec);
    const live = await this.#parts.reach(spec.id, process);
    const held = await live.hold(signal);
    const startedMs = performance.now();
    try {
      await copyWritten(volume.openUpper(spec.id).upperDir, dir);
      await saveComputer(live.computer, planned, { dir, isOff: held.isOff });
    } finally {
      await held.letGo();
    }
    const frozenMs = performance.now() - startedMs;
    // Its clock stood still. Nobody waits for that: a system need not answer at all.
    live.renew().catch(() => undefined);
    return frozenMs;
  }
}

/** Removes what a process left that died while it made copies. */
export async function sweepInstants(volume: Volume, plainDir: string): Promise<void> {
  await sweepOwnedTemps(instantsDir(volume, plainDir), INSTANT_PREFIX);
}

/** On the volume of disks, so that data can be shared. */
export function instantsDir(volume: Volume, plainDir: string): string {
  const dir = join(volume.sharedDir ?? plainDir, "instants");
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  return dir;
}
