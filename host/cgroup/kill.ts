import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import { signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { thawCgroup } from "./freeze.ts";
import type { Hierarchy, NodeTree } from "./layout.ts";

const SIGKILL = 9;
const KILL_DEADLINE_MS = 10_000;
const MAX_PAUSE_MS = 50;

/**
 * Kills every process in these cgroups of one sandbox and waits until none is left. The v2 tree's `cgroup.kill` ends all
 * at once, forks included; elsewhere pids are killed until no new one shows up. `Unavailable` when some will not die.
 */
export async function killCgroup(trees: readonly NodeTree[], deadlineMs = KILL_DEADLINE_MS): Promise<void> {
  const giveUpAtMs = performance.now() + deadlineMs;
  // Looked at first: `cgroup.kill` takes the one lock of all cgroups, and mostly there is nobody left.
  for (let pauseMs = 1; isPopulated(trees); pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    // What v1's freezer holds does not hear the signal.
    thawCgroup(trees.filter(({ tree }) => tree.version === 1));
    for (const { tree, dir } of trees) if (tree.version === 2) killAtOnce(dir);
    const left = trees.flatMap(({ dir }) => processesOf(dir).map((pid) => ({ pid, dir })));
    for (const { pid, dir } of left) killOne(pid, dir);
    if (performance.now() > giveUpAtMs) {
      throw new SandboxError("Unavailable", `${left.length} processes do not die`, {
        details: { pids: left.slice(0, 20).map(({ pid }) => String(pid)) },
      });
    }
    await delay(pauseMs);
  }
}

/**
 * Whether any process is in these cgroups of one sandbox. Reads counters where there are some: a list of processes costs the
 * kernel a sorted copy that it keeps for a while.
 */
export function isPopulated(trees: readonly NodeTree[]): boolean {
  let isCounted = false;
  for (const { tree, dir } of trees) {
    const count = countOf(tree, dir);
    if (count === undefined) continue;
    if (count !== "0") return true;
    isCounted = true;
  }
  return !isCounted && trees.some(({ dir }) => processesOf(dir).length > 0);
}

/** `0` for an empty cgroup; `undefined` where the tree does not count. */
function countOf(tree: Hierarchy, dir: string): string | undefined {
  if (tree.version === 2) {
    const line = readLines(join(dir, "cgroup.events")).find((candidate) => candidate.startsWith("populated "));
    return line?.slice("populated ".length);
  }
  return tree.controllers.has("pids") ? readLines(join(dir, "pids.current"))[0] : undefined;
}

/** Processes of a cgroup and of all below it; none when it is gone. */
export function processesOf(dir: string): readonly number[] {
  return readLines(join(dir, "cgroup.procs")).map(Number);
}

function killAtOnce(dir: string): void {
  try {
    // No O_CREAT: a kernel before 5.14 has no such file, and one must not be made in a plain directory.
    writeFileSync(join(dir, "cgroup.kill"), "1", { flag: "r+" });
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENODEV", "EOPNOTSUPP")) throw error;
  }
}

/** A pid read a moment ago may be somebody else's by now: the start time is taken before membership is checked again. */
function killOne(pid: number, dir: string): void {
  const startTicks = processStartTicks(pid);
  if (startTicks !== undefined && processesOf(dir).includes(pid)) signalProcess(pid, startTicks, SIGKILL);
}

function readLines(file: string): readonly string[] {
  try {
    return readFileSync(file, "utf8").split("\n").filter(Boolean);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENODEV")) return [];
    throw error;
  }
}
