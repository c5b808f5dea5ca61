import { readlinkSync } from "node:fs";
import { basename, dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import { type Cgroups, MAIN } from "#host/cgroup/cgroups.ts";
import { signalProcess } from "#host/sys/pidfd.ts";
import { processName, processStartTicks } from "#host/sys/process.ts";
import { type AgentProcess, isAlive } from "./handle.ts";

const SIGKILL = 9;

/** The launcher hands an agent the doors of its sandbox's cgroups from this descriptor on: `tasks` in v1, `cgroup.procs` in v2. */
const CGROUP_FD = 4;
const CGROUP_DOORS = ["tasks", "cgroup.procs"];

/** Ending an agent ends a whole process tree and its network namespace. */
const END_DEADLINE_MS = 15_000;
const MAX_PAUSE_MS = 20;

/** A launcher whose node died takes back the creates under way, and ends. */
const LAUNCHER_DEADLINE_MS = 15_000;

/**
 * Finds running agents by what the kernel knows of them: each holds its sandbox's cgroup files open. So an agent is found
 * even when the node died between starting it and writing that down.
 */
export function findAgents(cgroups: Cgroups): ReadonlyMap<string, readonly AgentProcess[]> {
  const found = new Map<string, AgentProcess[]>();
  for (const pid of cgroups.agentPids()) {
    const startTicks = processStartTicks(pid);
    const id = sandboxOf(pid);
    if (startTicks === undefined || id === undefined) continue;
    found.set(id, [...(found.get(id) ?? []), { pid, startTicks }]);
  }
  return found;
}

/**
 * Resolves when no launcher of an earlier node works here any more: what it was making must not appear after the sweep of what
 * that node left. `Unavailable` when it does not end.
 */
export async function awaitEarlierLauncher(cgroups: Cgroups): Promise<void> {
  const giveUpAtMs = performance.now() + LAUNCHER_DEADLINE_MS;
  for (let pauseMs = 1; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    const left = cgroups.agentPids().filter((pid) => isLauncher(pid) && processStartTicks(pid) !== undefined);
    if (left.length === 0) return;
    if (performance.now() > giveUpAtMs) {
      throw new SandboxError("Unavailable", `the launcher of an earlier node does not end: ${left.join(", ")}`, {
        hint: "kill these processes, then start the node again",
      });
    }
    await delay(pauseMs);
  }
}

/** Kills an agent, and with it everything in its process namespace; resolves when it is gone. */
export async function endAgent(agent: AgentProcess): Promise<void> {
  const giveUpAtMs = performance.now() + END_DEADLINE_MS;
  if (!signalProcess(agent.pid, agent.startTicks, SIGKILL)) return;
  for (let pauseMs = 1; isAlive(agent); pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    if (performance.now() > giveUpAtMs) throw new SandboxError("Unavailable", `agent ${agent.pid} does not die`);
    await delay(pauseMs);
  }
}

/** What is with the agents and is none, nor the server of what sandboxes see, which outlives nodes as they do. */
function isLauncher(pid: number): boolean {
  return sandboxOf(pid) === undefined && processName(pid) !== "dsec-view";
}

/** The sandbox of an agent; `undefined` for a process that is none (the launcher), or gone. */
function sandboxOf(pid: number): string | undefined {
  try {
    const file = readlinkSync(`/proc/${pid}/fd/${CGROUP_FD}`);
    if (!CGROUP_DOORS.includes(basename(file))) return undefined;
    const dir = dirname(file);
    return basename(basename(dir) === MAIN ? dirname(dir) : dir);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return undefined;
    throw error;
  }
}
