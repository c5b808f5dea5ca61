import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "#core/ids.ts";
import { type Computer, type ComputerMaker, type ComputerSpec, OTHER_MEMORY } from "#host/vmm/computer.ts";
import { restoreRange, saveMemory, saveRange } from "#host/vmm/memory.ts";
import { checkSaved, recordSaved, savedFiles } from "#host/vmm/saved.ts";
import type { MachinePlace } from "#host/vmm/vmm.ts";
import { staleMark } from "./agent.ts";

const MIB = 1024 * 1024;

/** A computer that could be started. */
export interface PlannedComputer {
  readonly maker: ComputerMaker;
  readonly spec: ComputerSpec;
}

/** Writes what a held computer is, but for its disk, into `dir`. */
export async function saveComputer(
  computer: Computer,
  { maker, spec }: PlannedComputer,
  { dir, isOff }: { readonly dir: string; readonly isOff: boolean },
): Promise<void> {
  const devices = await computer.saveDevices();
  const memory = { sizeBytes: spec.memoryMiB * MIB, address: await computer.memoryAddress() };
  await saveMemory(computer.process, memory, savedFiles(dir).memory);
  const others = await computer.otherMemory();
  for (const name of OTHER_MEMORY) {
    const range = others[name];
    if (range === undefined) rmSync(join(dir, name), { force: true });
    else await saveRange(computer.process, range, join(dir, name));
  }
  recordSaved(dir, devices, { identity: await maker.identity(spec), isOff });
}

/**
 * Starts a computer that is what was saved in `dir`, and held; its disk is the planned one's. Its agent gives it the time of now when it is reached, and the host name if one is given.
 * `FailedPrecondition` when it does not fit. What it rejects for leaves no process.
 */
export async function startSaved(
  id: SandboxId,
  { maker, spec }: PlannedComputer,
  from: { readonly dir: string; readonly place: MachinePlace; readonly hostname?: string },
  signal: AbortSignal,
): Promise<{ readonly computer: Computer; readonly isOff: boolean }> {
  const { dir, place, hostname = "" } = from;
  const { isOff } = checkSaved(id, dir, await maker.identity(spec));
  const computer = await maker.start({ ...spec, saved: savedFiles(dir) }, place, signal);
  try {
    const others = Object.entries(await computer.otherMemory());
    for (const [name, range] of others) await restoreRange(computer.process, range, join(dir, name));
    writeFileSync(staleMark(place.dir), hostname);
    signal.throwIfAborted();
    return { computer, isOff: isOff === true };
  } catch (error) {
    await computer.end();
    throw error;
  }
}
