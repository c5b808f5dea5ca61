import { readFileSync } from "node:fs";
import { hasCode } from "#core/errors.ts";

/** Memory of the machine and of one process, in KiB. */
export interface MemoryReading {
  readonly availableKiB: number;
  /** What the kernel keeps for itself, by kind. */
  readonly kernelKiB: Readonly<Record<(typeof KERNEL_KINDS)[number], number>>;
}

const KERNEL_KINDS = ["Slab", "PageTables", "KernelStack", "Percpu"] as const;

/** Reads /proc/meminfo. */
export function readMemory(): MemoryReading {
  const fields = parseFields(readFileSync("/proc/meminfo", "utf8"));
  const kernelKiB = Object.fromEntries(KERNEL_KINDS.map((kind) => [kind, fields.get(kind) ?? 0]));
  return { availableKiB: fields.get("MemAvailable") ?? 0, kernelKiB: kernelKiB as MemoryReading["kernelKiB"] };
}

/** What only this process has in memory, in KiB; 0 when it is gone. */
export function privateKiB(pid: number): number {
  const fields = parseFields(readIfThere(`/proc/${pid}/smaps_rollup`));
  return (fields.get("Private_Clean") ?? 0) + (fields.get("Private_Dirty") ?? 0);
}

/** Everything that this process has in memory, in KiB; 0 when it is gone. */
export function residentKiB(pid: number): number {
  return parseFields(readIfThere(`/proc/${pid}/status`)).get("VmRSS") ?? 0;
}

/** `Name:  123 kB` lines. */
export function parseFields(text: string): ReadonlyMap<string, number> {
  return new Map([...text.matchAll(/^(\w+):\s+(\d+) kB$/gm)].map((match) => [match[1] ?? "", Number(match[2])]));
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return "";
    throw error;
  }
}
