import type { SandboxId } from "#core/ids.ts";
import { saveMemory } from "#host/vmm/memory.ts";
import { checkSaved, recordSaved, savedFiles } from "#host/vmm/saved.ts";
import type { MachinePlace, MachineSpec, Vmm } from "#host/vmm/vmm.ts";
import { continueGuest, type Guest } from "./live.ts";
import { markRegions } from "./regions.ts";

const MIB = 1024 * 1024;

/** A machine that could be started. */
export interface PlannedMachine {
  readonly vmm: Vmm;
  readonly spec: MachineSpec;
  /** Equal for machines that can go on from each other. */
  readonly identity: string;
  /** Makes what it maps beside its memory, if that is not there. */
  prepare(): Promise<void>;
}

/** Writes what a held machine is, but for its disk, into `dir`. */
export async function saveMachine(
  { machine }: Guest,
  planned: Pick<PlannedMachine, "spec" | "identity">,
  dir: string,
): Promise<void> {
  const devices = await machine.saveDevices();
  await saveMemory(machine.process, { sizeBytes: planned.spec.memory.sizeMiB * MIB }, savedFiles(dir).memory);
  recordSaved(dir, devices, { identity: planned.identity, hasRegions: planned.spec.regions.length > 0 });
}

/**
 * Starts a machine that goes on from what is saved in `dir`; its disk is the planned one's. `started` is told before it runs. `FailedPrecondition` when it does
 * not fit. What it rejects for before `started` leaves no process.
 */
export async function startSaved(
  id: SandboxId,
  { vmm, spec, identity, prepare }: PlannedMachine,
  from: {
    readonly dir: string;
    readonly place: MachinePlace;
    /** Of a sandbox that was another one. */
    readonly hostname?: string | undefined;
    readonly log: (line: string) => void;
  },
  options: { readonly started: (guest: Pick<Guest, "machine">) => void; readonly signal: AbortSignal },
): Promise<Guest> {
  checkSaved(id, from.dir, identity);
  await prepare();
  markRegions(from.place.dir, spec.regions.length > 0);
  const { memory, devices } = savedFiles(from.dir);
  const file = { path: memory, access: "private" as const };
  const machine = await vmm.start({ ...spec, memory: { ...spec.memory, file }, devices }, from.place, options.signal);
  options.started({ machine });
  return await continueGuest(id, machine, { ...from, dir: from.place.dir }, options.signal);
}
