import { readFileSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import type { MachineMemory } from "#core/usage.ts";
import { isAlive } from "./qemu/process.ts";
import type { MachineProcess } from "./vmm.ts";

const KIB = 1024;

/** What a machine takes of the host's memory; undefined when it has ended. */
export function machineMemory(process: MachineProcess): MachineMemory | undefined {
  const text = readRollup(process.pid);
  if (text === undefined || !isAlive(process)) return undefined;
  const bytes = (name: string) => KIB * Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1] ?? 0);
  const [resident, own] = [bytes("Rss"), bytes("Anonymous")];
  return { privateBytes: own + bytes("Swap"), sharedBytes: Math.max(0, resident - own) };
}

function readRollup(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/smaps_rollup`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}
