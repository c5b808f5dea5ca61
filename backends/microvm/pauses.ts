import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Handle, Pausing, Place } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { handleOf, processOf, savedHandle } from "#host/vmm/handle.ts";
import { liveProcess, lostMachine } from "#host/vmm/qemu/process.ts";
import type { RunDirs } from "#host/vmm/run-dirs.ts";
import { forgetSaved, isSaved } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { Volume } from "#host/volume/volume.ts";
import { whileHeld } from "./held.ts";
import { continueGuest, type Guest } from "./live.ts";
import { type PlannedMachine, saveMachine, startSaved } from "./saving.ts";

/** What pauses need of the backend. */
export interface PauseParts {
  /** Where machines of this node are. */
  ground(): Promise<{ readonly runDirs: RunDirs; readonly volume: Volume }>;
  /** The machine that a sandbox has on this node now, or of what is saved in `savedDir`, over the disk that it has; it is not started. */
  machine(spec: SandboxSpec, place: Place, savedDir?: string): Promise<PlannedMachine>;
  /** Where it would run; makes its cgroups. */
  place(spec: SandboxSpec, place: Place): Promise<MachinePlace>;
  /** A live machine, known or adopted. */
  guest(id: SandboxId, process: MachineProcess, signal: AbortSignal): Promise<Guest>;
  keep(id: SandboxId, guest: Guest): void;
  /** Makes a saved sandbox of what was copied for it. */
  keepCopy(spec: SandboxSpec): Promise<void>;
  /** Ends what runs of a sandbox. */
  kill(id: SandboxId): Promise<void>;
  readonly log: (line: string) => void;
}

//   the sandbox is held ─► the machine is held ─► devices, memory ─► the record ─► the monitor ends
//
// Up to the record the machine lives, and can go on; from the record on it is saved. When it goes on the record goes first: what the
// disk takes from then on does not fit it.

/** Beside the disk of one whose machine was another sandbox's until it goes on: it is given a name and ids of its own then. */
const ANOTHER = "another";

/** Pauses of machines: memory and devices lie beside the disk. */
export class MachinePauses implements Pausing {
  readonly #parts: PauseParts;

  constructor(parts: PauseParts) {
    this.#parts = parts;
  }

  async pause(handle: Handle, spec: SandboxSpec, signal: AbortSignal): Promise<Handle> {
    const { id } = handle;
    const process = liveProcess(id, processOf(handle));
    const { volume } = await this.#parts.ground();
    const guest = await this.#parts.guest(id, process, signal);
    const planned = await this.#parts.machine(spec, { slot: 0 });
    const dir = volume.openUpper(id).upperDir;
    try {
      await whileHeld(guest, signal, async () => {
        await saveMachine(guest, planned, dir);
        if (!signal.aborted) return;
        // What was saved of one that goes on does not fit its disk any more.
        forgetSaved(dir);
        throw signal.reason;
      });
    } catch (error) {
      throw roomError(error);
    }
    await this.#parts.kill(id);
    return savedHandle(id, planned.spec.accelerator);
  }

  async keep(spec: SandboxSpec): Promise<Handle> {
    const { spec: planned } = await this.#parts.machine(spec, { slot: 0 });
    const { volume } = await this.#parts.ground();
    writeFileSync(join(volume.openUpper(spec.id).upperDir, ANOTHER), "");
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
    const { vmm, spec: planned } = await this.#parts.machine(spec, place);
    const machine = await vmm.adopt({ dir: runDirs.dir(id) }, running);
    if (machine === undefined) throw lostMachine(id);
    const parts = { dir: runDirs.dir(id), ...this.#another(spec, dir) };
    this.#parts.keep(id, await continueGuest(id, machine, parts, signal));
    rmSync(join(dir, ANOTHER), { force: true });
    return handleOf(id, running, planned.accelerator);
  }

  /** What a machine needs to go on as this sandbox. */
  #another({ hostname }: SandboxSpec, dir: string) {
    return { log: this.#parts.log, hostname: existsSync(join(dir, ANOTHER)) ? hostname : undefined };
  }

  async #goOn(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const { id } = spec;
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    const planned = await this.#parts.machine(spec, place, dir);
    const from = { dir, place: await this.#parts.place(spec, place), ...this.#another(spec, dir) };
    const started = ({ machine }: Pick<Guest, "machine">) => {
      runDirs.writeProcess(id, machine.process);
      forgetSaved(dir);
    };
    const guest = await startSaved(id, planned, from, { started, signal });
    rmSync(join(dir, ANOTHER), { force: true });
    this.#parts.keep(id, guest);
    return handleOf(id, guest.machine.process, planned.spec.accelerator);
  }
}
