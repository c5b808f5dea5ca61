import { existsSync, writeFileSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { OwnedTemp } from "#host/owned-temp.ts";
import type { Computer } from "#host/vmm/computer.ts";
import { type InstantDirs, Instants } from "#host/vmm/instants.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import { answeredMark } from "./agent.ts";
import { copyWritten, roomError } from "./disk.ts";
import type { PauseParts } from "./pauses.ts";
import { type PlannedComputer, saveComputer, startSaved } from "./saving.ts";

/** What copies need of the backend. */
export interface CopyParts extends Pick<PauseParts, "ground" | "computer" | "reach"> {
  readonly instants: InstantDirs;
}

/** What a computer was at one moment. */
interface Instant {
  readonly dir: string;
  /** False: its monitor did not run, and only its disk is there. */
  readonly isSaved: boolean;
  /** Its agent had answered: that of a copy is waited for. */
  readonly hasAgent: boolean;
}

//   hold still ─► copy of the disk ─► devices, memory, screen ─► let go ─► a disk for each copy ─► each starts a monitor from there
//
// All of them map one memory file privately: what they do not write they have once. It has no name any more when the last has begun.

/** Copies of computers, with what runs in them and what they show. */
export class ComputerCopies implements Copying {
  readonly copies = true;
  readonly processes = true;
  readonly packs = false;
  readonly #parts: CopyParts;
  readonly #instants = new Instants<Instant>();

  constructor(parts: CopyParts) {
    this.#parts = parts;
  }

  async copy(spec: SandboxSpec, { to }: Copies, signal: AbortSignal): Promise<Copied> {
    const { volume } = await this.#parts.ground();
    if (!volume.list().has(spec.id)) throw new SandboxError("NotFound", `${spec.id} has no disk`);
    try {
      const temp = this.#parts.instants.make(volume);
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
        const { upperDir } = volume.createUpper(id, undefined);
        begun.push(id);
        await copyWritten(temp.path, upperDir);
      }
    } catch (error) {
      for (const id of begun) await volume.removeUpper(id);
      throw error;
    }
    this.#instants.keep({ dir: temp.path, isSaved, hasAgent }, temp, to);
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
    const { dir, isSaved, hasAgent } = this.#instants.of(id);
    if (!isSaved) return undefined;
    const started = await startSaved(id, planned, { dir, place, hostname }, signal);
    if (hasAgent) writeFileSync(answeredMark(place.dir), "");
    return started;
  }

  /** See `Instants`. */
  release(id: SandboxId): Promise<void> {
    return this.#instants.release(id);
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
