import type { MachineProcess } from "./vmm.ts";

/** A record from text that was written here; `undefined` when a crash cut it short. */
export function parseProcess(text: string): MachineProcess | undefined {
  try {
    return asProcess(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A record as it was stored; `undefined` for what names no process. */
export function asProcess(value: unknown): MachineProcess | undefined {
  if (typeof value !== "object" || value === null || !("pid" in value) || !("startTicks" in value)) return undefined;
  const { pid, startTicks } = value;
  if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
  return { pid: Number(pid), startTicks: Number(startTicks) };
}
