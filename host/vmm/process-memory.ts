import { readFile } from "node:fs/promises";
import { hasCode } from "#core/errors.ts";
import type { MachineMemory } from "#core/usage.ts";
import { isAlive } from "./qemu/process.ts";
import type { MachineProcess } from "./vmm.ts";

const KIB = 1024;

/** What a machine takes of the host's memory; undefined when it has ended. */
export async function machineMemory(process: MachineProcess): Promise<MachineMemory | undefined> {
  const text = await readRollup(process.pid);
  if (text === undefined || !isAlive(process)) return undefined;
  const bytes = (name: string) => KIB * Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1] ?? 0);
  const [resident, own] = [bytes("Rss"), bytes("Anonymous")];
  return { privateBytes: own + bytes("Swap"), sharedBytes: Math.max(0, resident - own) };
}

/** The kernel counts page by page, ten milliseconds for each gibibyte, and waits for a process that changes what it maps: others are served meanwhile. */
async function readRollup(pid: number): Promise<string | undefined> {
  try {
    return await readFile(`/proc/${pid}/smaps_rollup`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}
