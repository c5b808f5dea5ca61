import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Accelerator } from "#core/sandbox.ts";
import { asProcess } from "./process-record.ts";
import type { MachineProcess } from "./vmm.ts";

/** What the edge stores of a sandbox that is a machine. */
export function handleOf(id: SandboxId, { pid, startTicks }: MachineProcess, accelerator: Accelerator): Handle {
  return { version: 1, id, opaque: { pid, startTicks }, accelerator };
}

/** What the edge stores of one that is paused: all of it lies beside its disk. */
export function savedHandle(id: SandboxId, accelerator: Accelerator): Handle {
  return { version: 1, id, opaque: {}, accelerator };
}

/** The process a handle names; `undefined` for that of a paused sandbox and a handle that was not made here. */
export function processOf(handle: Handle): MachineProcess | undefined {
  return handle.version === 1 ? asProcess(handle.opaque) : undefined;
}
