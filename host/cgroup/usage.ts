import { join } from "node:path";
import type { CpuUsage, MemoryUsage } from "#core/usage.ts";
import type { NodeTree } from "./layout.ts";

/** What a sandbox's cgroups have counted. */
export interface CgroupUsage {
  readonly cpu: CpuUsage;
  readonly memory: MemoryUsage;
  readonly oomKills: number;
  /** The spawner of the sandbox included. */
  readonly pids: number;
}

/** Gives the empty string for a file that is not there. */
type Read = (file: string) => string;

/** Reads the counters of one sandbox's cgroups. */
export function readUsage(trees: readonly NodeTree[], read: Read): CgroupUsage {
  const dirOf = (version: 1 | 2, controller: "cpu" | "memory" | "pids") =>
    trees.find(({ tree }) => tree.version === version && tree.controllers.has(controller))?.dir;
  const [memory1, memory2] = [dirOf(1, "memory"), dirOf(2, "memory")];
  const pids = dirOf(1, "pids") ?? dirOf(2, "pids");
  // Every v2 tree counts CPU time, with or without its cpu controller.
  const unified = trees.find(({ tree }) => tree.version === 2)?.dir;
  const cpu1 = dirOf(1, "cpu");
  return {
    cpu: { ...readTimes(unified, cpu1, read), throttledMs: readThrottledMs(unified, cpu1, read) },
    memory: memory1 === undefined ? readMemory2(memory2, read) : readMemory1(memory1, read),
    oomKills:
      field(read, memory1, "memory.oom_control", "oom_kill") + field(read, memory2, "memory.events", "oom_kill"),
    pids: number(read, pids, "pids.current"),
  };
}

/** v1 has these files only when cpu and cpuacct are one tree, as distributions mount them. */
function readTimes(unified: string | undefined, cpu1: string | undefined, read: Read): Omit<CpuUsage, "throttledMs"> {
  if (unified !== undefined) {
    const values = keyed(read(join(unified, "cpu.stat")));
    const ms = (key: string) => (values.get(key) ?? 0) / 1e3;
    return { totalMs: ms("usage_usec"), userMs: ms("user_usec"), systemMs: ms("system_usec") };
  }
  return {
    totalMs: number(read, cpu1, "cpuacct.usage") / 1e6,
    userMs: number(read, cpu1, "cpuacct.usage_user") / 1e6,
    systemMs: number(read, cpu1, "cpuacct.usage_sys") / 1e6,
  };
}

/** The tree that limits is the one that knows. */
function readThrottledMs(unified: string | undefined, cpu1: string | undefined, read: Read): number {
  if (cpu1 !== undefined) return field(read, cpu1, "cpu.stat", "throttled_time") / 1e6;
  return field(read, unified, "cpu.stat", "throttled_usec") / 1e3;
}

function readMemory1(dir: string, read: Read): MemoryUsage {
  const bytes = number(read, dir, "memory.usage_in_bytes");
  const withSwap = number(read, dir, "memory.memsw.usage_in_bytes");
  // Read one after the other: what was freed in between must not become swap below zero.
  return { bytes, peakBytes: number(read, dir, "memory.max_usage_in_bytes"), swapBytes: Math.max(0, withSwap - bytes) };
}

function readMemory2(dir: string | undefined, read: Read): MemoryUsage {
  return {
    bytes: number(read, dir, "memory.current"),
    peakBytes: number(read, dir, "memory.peak"),
    swapBytes: number(read, dir, "memory.swap.current"),
  };
}

function number(read: Read, dir: string | undefined, file: string): number {
  return dir === undefined ? 0 : Number(read(join(dir, file)).trim());
}

function field(read: Read, dir: string | undefined, file: string, key: string): number {
  return dir === undefined ? 0 : (keyed(read(join(dir, file))).get(key) ?? 0);
}

/** A file of lines `key value`. */
function keyed(text: string): ReadonlyMap<string, number> {
  const pairs = text.split("\n").map((line) => line.split(" "));
  return new Map(pairs.map(([key = "", value]) => [key, Number(value)]));
}
