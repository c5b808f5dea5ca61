import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SandboxId } from "#core/ids.ts";
import { type Computer, type ComputerMaker, type ComputerSpec, OTHER_MEMORY } from "#host/vmm/computer.ts";
import { restoreRange, saveMemory, saveRange } from "#host/vmm/memory.ts";
import { checkSaved, copySaved, isSaved, recordSaved, savedFiles } from "#host/vmm/saved.ts";
import type { MachinePlace } from "#host/vmm/vmm.ts";
import { ANSWERED, STALE } from "./agent.ts";

const MIB = 1024 * 1024;

/** What is known of the agent of a computer lies in its run directory, and while it is saved beside its disk. */
const MARKS = [STALE, ANSWERED];

/** A computer that could be started. */
export interface PlannedComputer {
  readonly maker: ComputerMaker;
  readonly spec: ComputerSpec;
}

/** Writes what a held computer is, but for its disk, into `dir`; with what `runDir` tells of its agent. */
export async function saveComputer(
  computer: Computer,
  { maker, spec }: PlannedComputer,
  { dir, runDir, isOff }: { readonly dir: string; readonly runDir: string; readonly isOff: boolean },
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
  for (const mark of MARKS) {
    if (existsSync(join(runDir, mark)))
      writeFileSync(join(dir, mark), readFileSync(join(runDir, mark)), { flush: true });
    else rmSync(join(dir, mark), { force: true });
  }
  recordSaved(dir, devices, { identity: await maker.identity(spec), isOff });
}

/**
 * Copies what is saved of a computer in a directory, but for its disk, into another one: if anything is. With a host name the copy is another sandbox, which is to take it
 * when it goes on.
 */
export async function copySavedComputer(from: string, to: string, hostname?: string): Promise<void> {
  if (!isSaved(from)) return;
  if (hostname !== undefined) writeFileSync(join(to, STALE), hostname, { flush: true });
  const others = hostname === undefined ? MARKS : MARKS.filter((mark) => mark !== STALE);
  await copySaved(from, to, [...OTHER_MEMORY, ...others]);
}

/**
 * Starts a computer that is what was saved in `dir`, and held; its disk is the planned one's. Its agent gives it the time of now when it is reached, and the host name if one is given,
 * or was to be given when it was saved.
 * `FailedPrecondition` when it does not fit. What it rejects for leaves no process.
 */
export async function startSaved(
  id: SandboxId,
  { maker, spec }: PlannedComputer,
  from: { readonly dir: string; readonly place: MachinePlace; readonly hostname?: string },
  signal: AbortSignal,
): Promise<{ readonly computer: Computer; readonly isOff: boolean }> {
  const { dir, place, hostname = markIn(dir, STALE) ?? "" } = from;
  const { isOff } = checkSaved(id, dir, await maker.identity(spec));
  const computer = await maker.start({ ...spec, saved: savedFiles(dir) }, place, signal);
  try {
    const others = Object.entries(await computer.otherMemory());
    for (const [name, range] of others) await restoreRange(computer.process, range, join(dir, name));
    writeFileSync(join(place.dir, STALE), hostname);
    if (markIn(dir, ANSWERED) !== undefined) writeFileSync(join(place.dir, ANSWERED), "");
    signal.throwIfAborted();
    return { computer, isOff: isOff === true };
  } catch (error) {
    await computer.end();
    throw error;
  }
}

function markIn(dir: string, mark: string): string | undefined {
  const path = join(dir, mark);
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
}
