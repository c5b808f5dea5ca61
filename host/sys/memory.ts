import { readFileSync } from "node:fs";

/**
 * MiB that new work may take before the machine swaps: free memory and what caches would give back, as the kernel estimates
 * it. Throws a plain `Error` where /proc/meminfo does not say.
 */
export function availableMemoryMiB(): number {
  const match = /^MemAvailable: +(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "latin1"));
  if (match === null) throw new Error("/proc/meminfo has no MemAvailable");
  return Math.floor(Number(match[1]) / 1024);
}
