import { existsSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Copied, Copies, Copying } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { type InstantDirs, Instants } from "#host/vmm/instants.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import { copySaved, isSaved } from "#host/vmm/saved.ts";
import type { MachineProcess } from "#host/vmm/vmm.ts";
import { roomError } from "#host/volume/room-error.ts";
import { copyDisk, diskIn, diskPath } from "./disk.ts";
import { whileHeld } from "./held.ts";
import type { PauseParts } from "./pauses.ts";
import { saveMachine } from "./saving.ts";

/** What copies need of the backend. */
export interface CopyParts extends Pick<PauseParts, "ground" | "machine" | "guest"> {
  readonly instants: InstantDirs;
}

/** What a sandbox was at one moment. */
export interface Instant {
  readonly dir: string;
  /** False: its machine did not run, and only its disk is there. */
  readonly saved: boolean;
}

//   hold still ─► copy of the disk ─► devices, memory ─► let go ─► a disk for each copy ─► each starts a machine from there
//
// All of them map one memory file privately: what they do not write they have once. It has no name any more when the last has begun.

/** Copies of machines, with what runs in them. */
export class MachineCopies implements Copying {
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
    const { runDirs, volume } = await this.#parts.ground();
    if (!existsSync(diskPath(volume.openUpper(spec.id)))) throw new SandboxError("NotFound", `${spec.id} has no disk`);
    const process = runDirs.readProcess(spec.id);
    const temp = this.#parts.instants.make(volume);
    const made: SandboxId[] = [];
    try {
      const runs = process !== undefined && isAlive(process);
      const frozenMs = runs
        ? await this.#save(spec, process, temp.path, signal)
        : await this.#copyFiles(spec, temp.path);
      for (const id of to) {
        signal.throwIfAborted();
        await copyDisk(volume, { ...spec, id }, diskIn(temp.path));
        made.push(id);
      }
      this.#instants.keep({ dir: temp.path, saved: isSaved(temp.path) }, temp, to);
      return { frozenMs };
    } catch (error) {
      for (const id of made) await volume.removeUpper(id);
      await temp[Symbol.asyncDispose]();
      throw roomError(error);
    }
  }

  /** What a copy begins with. Throws `SandboxLost` for what is no copy, or has begun already. */
  instantOf(id: SandboxId): Instant {
    return this.#instants.of(id);
  }

  /** Puts what was saved for a copy beside its disk: it is a saved sandbox then. Throws as `instantOf` does, and where nothing was saved. */
  async keep({ id }: SandboxSpec): Promise<void> {
    const { dir, saved } = this.instantOf(id);
    if (!saved) {
      throw new SandboxError("FailedPrecondition", "the machine of the sandbox is gone, and its memory with it", {
        hint: "fork its files alone, or pack them",
      });
    }
    const { runDirs, volume } = await this.#parts.ground();
    runDirs.make(id);
    await copySaved(dir, volume.openUpper(id).upperDir);
    await this.release(id);
  }

  /** See `Instants`. */
  release(id: SandboxId): Promise<void> {
    return this.#instants.release(id);
  }

  async #save(spec: SandboxSpec, process: MachineProcess, dir: string, signal: AbortSignal): Promise<number> {
    const { volume } = await this.#parts.ground();
    const guest = await this.#parts.guest(spec.id, process, signal);
    const planned = await this.#parts.machine(spec, { slot: 0 });
    // Copies may begin with the files alone.
    return await whileHeld(guest.written(), signal, async ({ letGo }) => {
      const startedMs = performance.now();
      await copyFileSparse(diskPath(volume.openUpper(spec.id)), diskIn(dir));
      await saveMachine(guest, planned, dir);
      await letGo();
      return performance.now() - startedMs;
    });
  }

  /** Of a sandbox that is saved, or was lost: then its files live on. */
  async #copyFiles(spec: SandboxSpec, dir: string): Promise<number> {
    const { volume } = await this.#parts.ground();
    const upper = volume.openUpper(spec.id);
    await copyFileSparse(diskPath(upper), diskIn(dir));
    await copySaved(upper.upperDir, dir);
    return 0;
  }
}
