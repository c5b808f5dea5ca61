import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Handle, Pausing, Place } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { type ComputerMaker, type ComputerSpec, OTHER_MEMORY } from "#host/vmm/computer.ts";
import { restoreRange, saveMemory, saveRange } from "#host/vmm/memory.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import type { RunDirs } from "#host/vmm/run-dirs.ts";
import { checkSaved, forgetSaved, isSaved, recordSaved, savedFiles } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineProcess } from "#host/vmm/vmm.ts";
import type { Volume } from "#host/volume/volume.ts";
import { staleMark } from "./agent.ts";
import { handleOf, processOf, savedHandle } from "./handle.ts";
import { keepName, type LiveComputer, lost } from "./live.ts";

/** What pauses need of the backend. */
export interface PauseParts {
  /** Where computers of this node are. */
  ground(): Promise<{ readonly runDirs: RunDirs; readonly volume: Volume }>;
  computers(): ComputerMaker;
  /** The computer that a sandbox has on this node now, over the disk that it has; it is not started. */
  computer(spec: SandboxSpec): Promise<ComputerSpec>;
  /** Where it would run; makes its cgroups. */
  place(spec: SandboxSpec, place: Place): Promise<MachinePlace>;
  /** Talks to a live one. */
  reach(id: SandboxId, process: MachineProcess): Promise<LiveComputer>;
  /** Ends what runs of a sandbox. */
  kill(id: SandboxId): Promise<void>;
}

const MIB = 1024 * 1024;
/** In the run directory of one that is held for a pause, and was on before. */
const HELD = "held";

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
    const process = processOf(handle);
    if (process === undefined || !isAlive(process)) throw lost(id);
    const live = await this.#parts.reach(id, process);
    const isOff = !(await live.computer.isOn());
    signal.throwIfAborted();
    const held = join((await this.#parts.ground()).runDirs.dir(id), HELD);
    if (!isOff) writeFileSync(held, "");
    await live.computer.switchOff();
    try {
      await this.#save(spec, live, isOff);
      signal.throwIfAborted();
    } catch (error) {
      await this.#forget(id);
      if (!isOff) await live.computer.goOn();
      rmSync(held, { force: true });
      throw error;
    }
    await this.#parts.kill(id);
    rmSync(held, { force: true });
    return savedHandle(id);
  }

  async resume(handle: Handle, spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const { id } = handle;
    const { runDirs, volume } = await this.#parts.ground();
    if (isSaved(volume.openUpper(id).upperDir)) {
      // A monitor that is there was about to end, or had only begun.
      await this.#parts.kill(id);
      return await this.#goOn(spec, place, signal);
    }
    const running = runDirs.readProcess(id);
    if (running === undefined || !isAlive(running)) throw lost(id);
    const { computer } = await this.#parts.reach(id, running);
    const held = join(runDirs.dir(id), HELD);
    if (existsSync(held)) await computer.goOn();
    rmSync(held, { force: true });
    return handleOf(id, running, (await this.#parts.computer(spec)).accelerator);
  }

  /** What was saved of one that goes on does not fit its disk any more. */
  async #forget(id: SandboxId): Promise<void> {
    forgetSaved((await this.#parts.ground()).volume.openUpper(id).upperDir);
  }

  async #save(spec: SandboxSpec, { computer }: LiveComputer, isOff: boolean): Promise<void> {
    const { id } = spec;
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    const planned = await this.#parts.computer(spec);
    const files = savedFiles(dir);
    const devices = await computer.saveDevices();
    const memory = { sizeBytes: planned.memoryMiB * MIB, address: await computer.memoryAddress() };
    await saveMemory(computer.process, memory, files.memory);
    const others = await computer.otherMemory();
    for (const name of OTHER_MEMORY) {
      const range = others[name];
      if (range === undefined) rmSync(join(dir, name), { force: true });
      else await saveRange(computer.process, range, join(dir, name));
    }
    const identity = await this.#parts.computers().identity(planned);
    keepName(runDirs.dir(id), computer.process);
    recordSaved(dir, devices, { identity, isOff });
  }

  async #goOn(spec: SandboxSpec, place: Place, signal: AbortSignal): Promise<Handle> {
    const { id } = spec;
    const { runDirs, volume } = await this.#parts.ground();
    const dir = volume.openUpper(id).upperDir;
    const planned = await this.#parts.computer(spec);
    const makers = this.#parts.computers();
    const { isOff } = checkSaved(id, dir, await makers.identity(planned));
    const files = savedFiles(dir);
    const where = await this.#parts.place(spec, place);
    const computer = await makers.start({ ...planned, saved: files }, where, signal);
    try {
      const others = Object.entries(await computer.otherMemory());
      for (const [name, range] of others) await restoreRange(computer.process, range, join(dir, name));
      writeFileSync(staleMark(where.dir), "");
      signal.throwIfAborted();
    } catch (error) {
      await computer.end();
      throw error;
    }
    runDirs.writeProcess(id, computer.process);
    const held = join(where.dir, HELD);
    if (isOff !== true) writeFileSync(held, "");
    forgetSaved(dir);
    if (isOff !== true) await computer.goOn();
    rmSync(held, { force: true });
    computer.leave();
    await this.#parts.reach(id, computer.process);
    return handleOf(id, computer.process, planned.accelerator);
  }
}
