import { join } from "node:path";
import type { NodeTree } from "./layout.ts";

/** What a sandbox's cgroups have counted. */
export interface CgroupUsage {
  readonly cpuMs: number;
  readonly memoryBytes: number;
  /** Highest so far; zero where the kernel does not keep it (v2 before 5.19). */
  readonly memoryPeakBytes: number;
  readonly oomKills: number;
  readonly pids: number;
}

/** Reads the counters of one sandbox's cgroups. `read` gives the empty string for a file that is not there. */
export function readUsage(trees: readonly NodeTree[], read: (file: string) => string): CgroupUsage {
  const dirOf = (version: 1 | 2, controller: "cpu" | "memory" | "pids") =>
    trees.find(({ tree }) => tree.version === version && tree.controllers.has(controller))?.dir;
  const number = (dir: string | undefined, file: string) =>
    dir === undefined ? 0 : Number(read(join(dir, file)).trim());
  const field = (dir: string | undefined, file: string, key: string) =>
    dir === undefined ? 0 : keyed(read(join(dir, file)), key);
  const [memory1, memory2] = [dirOf(1, "memory"), dirOf(2, "memory")];
  // Every v2 tree counts CPU time, with or without its cpu controller.
  const unified = trees.find(({ tree }) => tree.version === 2)?.dir;
  const cpu1 = dirOf(1, "cpu");
  const pids = dirOf(1, "pids") ?? dirOf(2, "pids");
  return {
    cpuMs:
      unified !== undefined
        ? field(unified, "cpu.stat", "usage_usec") / 1e3
        : // Only there when cpu and cpuacct are one tree, as distributions mount them.
          number(cpu1, "cpuacct.usage") / 1e6,
    memoryBytes: number(memory1, "memory.usage_in_bytes") + number(memory2, "memory.current"),
    memoryPeakBytes: number(memory1, "memory.max_usage_in_bytes") + number(memory2, "memory.peak"),
    oomKills: field(memory1, "memory.oom_control", "oom_kill") + field(memory2, "memory.events", "oom_kill"),
    pids: number(pids, "pids.current"),
  };
}

/** The value of `key value` in a file of such lines. */
function keyed(text: string, key: string): number {
  const line = text.split("\n").find((candidate) => candidate.startsWith(`${key} `));
  return line === undefined ? 0 : Number(line.slice(key.length + 1));
}
