import { writeFileSync } from "node:fs";
import type { Handle, Pausing, Place } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { handleOf, processOf, savedHandle } from "#host/vmm/handle.ts";
import { liveProcess } from "#host/vmm/qemu/process.ts";
import type { RunDirs } from "#host/vmm/run-dirs.ts";
import { forgetSaved, isSaved } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { Volume } from "#host/volume/volume.ts";
import { heldMark, keepName, type LiveComputer } from "./live.ts";
import { type PlannedComputer, saveComputer, startSaved } from "./saving.ts";

/** What pauses need of the backend. */
export interface PauseParts {
  /** Where computers of this node are. */
  ground(): Promise<{ readonly runDirs: RunDirs; readonly volume: Volume }>;
  /** The computer that a sandbox has on this node now, over the disk that it has; it is not started. */
  computer(spec: SandboxSpec): Promise<PlannedComputer>;
  /** Where it would run; makes its cgroups. */
  place(spec: SandboxSpec, place: Place): Promise<MachinePlace>;
  /** Talks to a live one. */
  reach(id: SandboxId, process: MachineProcess): Promise<LiveComputer>;
  /** Ends what runs of a sandbox. */
  kill(id: SandboxId): Promise<void>;
  /** Makes a paused sandbox of what was copied for it. */
  keepCopy(spec: SandboxSpec): Promise<void>;
}

//   held ─► devices, memory, screen ─► the record ─► the monitor ends
//
// Up to the record the computer lives, and can go on; from the record on it is saved. When it goes on the record goes first: what the
// disk takes from then on does not fit it.

/** Pauses of computers: memory, devices and what the screen shows lie beside the disk. */
export class ComputerPauses implements Pausing {
  readonly #parts: PauseParts;

  constructor(parts: PauseParts) {
    this.#parts = parts;
  }

  async pause(handle: Handle, spec: SandboxSpec, signal: AbortSignal): Promise<Handle> {
    const { id } = handle;
    const process = liveProcess(id, processOf(handle));
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    const planned = await this.#parts.computer(spec);
    const live = await this.#parts.reach(id, process);
    const held = await live.hold(signal);
    try {
      const runDir = runDirs.dir(id);
      keepName(runDir, process);
      await saveComputer(live.computer, planned, { dir, runDir, isOff: held.isOff });
      signal.throwIfAborted();
    } catch (error) {
      // What was saved of one that goes on does not fit its disk any more.
      forgetSaved(dir);
      await held.letGo();
      throw roomError(error);
    }
    try {
      await this.#parts.kill(id);
    } finally {
      await held.letGo();
    }
    return savedHandle(id, planned.spec.accelerator);
  }

  async keep(spec: SandboxSpec): Promise<Handle> {
    const { spec: planned } = await this.#parts.computer(spec);
    try {
      await this.#parts.keepCopy(spec);
    } catch (error) {
      throw roomError(error);
    }
    return savedHandle(spec.id, planned.accelerator);
  }

  async resume(handle: Handle, spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const { id } = handle;
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    if (isSaved(dir)) {
      // A monitor that is there was about to end, or had only begun.
      await this.#parts.kill(id);
      try {
        return await this.#goOn(spec, place, signal);
      } catch (error) {
        // What stays saved holds nothing but its files.
        if (isSaved(dir)) await this.#parts.kill(id);
        throw error;
      }
    }
    const running = liveProcess(id, runDirs.readProcess(id));
    await this.#parts.reach(id, running);
    return handleOf(id, running, (await this.#parts.computer(spec)).spec.accelerator);
  }

  async #goOn(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const { id } = spec;
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    const planned = await this.#parts.computer(spec);
    const where = await this.#parts.place(spec, place);
    const { computer, isOff } = await startSaved(id, planned, { dir, place: where }, signal);
    runDirs.writeProcess(id, computer.process);
    if (!isOff) writeFileSync(heldMark(where.dir), "");
    forgetSaved(dir);
    computer.leave();
    // Whoever reaches one that has the mark lets it go on.
    await this.#parts.reach(id, computer.process);
    return handleOf(id, computer.process, planned.spec.accelerator);
  }
}
