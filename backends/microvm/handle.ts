import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";
import type { MachineProcess } from "#host/vmm/vmm.ts";

/** What the edge stores of a sandbox. */
export function handleOf(id: SandboxId, { pid, startTicks }: MachineProcess): Handle {
  return { version: 1, id, opaque: { pid, startTicks } };
}

/** The process a handle names; `undefined` for a handle that this backend did not make. */
export function processOf(handle: Handle): MachineProcess | undefined {
  return handle.version === 1 ? asProcess(handle.opaque) : undefined;
}

/** A record from text that this backend wrote; `undefined` when a crash cut it short. */
export function parseProcess(text: string): MachineProcess | undefined {
  try {
    return asProcess(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function asProcess(value: unknown): MachineProcess | undefined {
  if (typeof value !== "object" || value === null || !("pid" in value) || !("startTicks" in value)) return undefined;
  const { pid, startTicks } = value;
  if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}
