import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Place } from "#core/backend.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { OwnedTemp } from "#host/owned-temp.ts";
import type { Computer } from "#host/vmm/computer.ts";
import { type InstantDirs, Instants } from "#host/vmm/instants.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import { isSaved } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import { STALE } from "./agent.ts";
import { copyWritten } from "./disk.ts";
import type { LiveComputer } from "./live.ts";
import type { PauseParts } from "./pauses.ts";
import { copySavedComputer, type PlannedComputer, saveComputer, startSaved } from "./saving.ts";

/** Copies may begin with the disk alone: a system that does not write out what it holds back within this is copied as if its plug was pulled. */
const SYNC_MS = 10_000;

/** What copies need of the backend. */
export interface CopyParts extends Pick<PauseParts, "ground" | "computer" | "reach"> {
  readonly instants: InstantDirs;
}

/** What a computer was at one moment. */
interface Instant {
  readonly dir: string;
  /** False: its monitor did not run, and only its disk is there. */
  readonly isSaved: boolean;
}

//   its system writes out ─► hold still ─► copy of the disk ─► devices, memory, screen ─► let go ─► a disk for each copy ─► each starts a monitor from there
//
// All of them map one memory file privately: what they do not write they have once. It has no name any more when the last has begun.

/** Copies of computers, with what runs in them and what they show. */
export class ComputerCopies implements Copying {
  readonly copies = true;
  readonly processes = true;
  readonly packs = false;
  readonly copiesSaved = true;
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
    const runs = process !== undefined && isAlive(process);
    const frozenMs = runs
      ? await this.#save(spec, process, temp.path, signal)
      : await this.#copyFiles(spec.id, temp.path);
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
    this.#instants.keep({ dir: temp.path, isSaved: isSaved(temp.path) }, temp, to);
    return { frozenMs };
  }

  /**
   * Starts the computer of a copy, over the disk that it has, from what was saved; `undefined`: there is nothing but that disk, or it shall begin with that alone,
   * and it starts anew. Resolves before it goes on. Throws `SandboxLost` for what is no copy, or has begun already.
   */
  async start(
    { id, hostname }: SandboxSpec,
    planned: PlannedComputer,
    place: MachinePlace & Pick<Place, "copied">,
    signal: AbortSignal,
  ): Promise<{ readonly computer: Computer; readonly isOff: boolean } | undefined> {
    const { dir, isSaved } = this.#instants.of(id);
    if (isSaved && place.copied === "all") return await startSaved(id, planned, { dir, place, hostname }, signal);
    writeFileSync(join(place.dir, STALE), hostname);
    return undefined;
  }

  /** Puts what was saved for a copy beside its disk: it is a paused sandbox then. Throws as `start` does, and where nothing was saved. */
  async keep({ id, hostname }: SandboxSpec): Promise<void> {
    const { dir, isSaved } = this.#instants.of(id);
    if (!isSaved) {
      throw new SandboxError("FailedPrecondition", "the computer of the sandbox is gone, and its memory with it", {
        hint: "fork its disk alone, or pack it",
      });
    }
    const { runDirs, volume } = await this.#parts.ground();
    runDirs.make(id);
    await copySavedComputer(dir, volume.openUpper(id).upperDir, hostname);
    await this.release(id);
  }

  /** See `Instants`. */
  release(id: SandboxId): Promise<void> {
    return this.#instants.release(id);
  }

  async #save(spec: SandboxSpec, process: MachineProcess, dir: string, signal: AbortSignal): Promise<number> {
    const { runDirs, volume } = await this.#parts.ground();
    const planned = await this.#parts.computer(spec);
    const live = await this.#parts.reach(spec.id, process);
    await writeOut(live, signal);
    const held = await live.hold(signal);
    const startedMs = performance.now();
    try {
      await copyWritten(volume.openUpper(spec.id).upperDir, dir);
      await saveComputer(live.computer, planned, { dir, runDir: runDirs.dir(spec.id), isOff: held.isOff });
    } finally {
      await held.letGo();
    }
    const frozenMs = performance.now() - startedMs;
    // Its clock stood still. Nobody waits for that: a system need not answer at all.
    live.renew().catch(() => undefined);
    return frozenMs;
  }

  /** Of a sandbox that is paused, or was lost: then its disk lives on. */
  async #copyFiles(id: SandboxId, dir: string): Promise<number> {
    const { upperDir } = (await this.#parts.ground()).volume.openUpper(id);
    await copyWritten(upperDir, dir);
    await copySavedComputer(upperDir, dir);
    return 0;
  }
}

/** As far as it can: a system that hangs is copied with what it has in its memory. */
async function writeOut(live: LiveComputer, signal: AbortSignal): Promise<void> {
  try {
    await abortable(live.sync(), AbortSignal.any([signal, AbortSignal.timeout(SYNC_MS)]));
  } catch {
    signal.throwIfAborted();
  }
}
