import { readFileSync } from "node:fs";
import type { Footprint, Inventory } from "#core/backend.ts";
import { hasCode } from "#core/errors.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import { readMounts } from "#host/sys/mountinfo.ts";
import { isExiting } from "#host/sys/process.ts";
import type { Volume } from "#host/volume/volume.ts";
import { findAgents } from "./agents.ts";
import type { Blanks } from "./blanks.ts";
import type { AgentProcess } from "./handle.ts";
import type { RunDirs } from "./run-dirs.ts";

/** A sandbox's mounts live and die in a namespace of its own: the host has none. Once dead, it keeps what its files need. */
export const FOOTPRINT: Footprint = {
  ready: new Set(["processes", "cgroups", "network-namespaces", "user-ids", "uppers", "run-directories"]),
  paused: new Set(),
  failed: new Set(["uppers", "run-directories"]),
};

/** Where to look. */
export interface Places {
  readonly cgroups: Cgroups;
  readonly volume: Volume;
  readonly runDirs: RunDirs;
  readonly blanks: Pick<Blanks, "uidBases" | "uppers">;
  /** Sandboxes' mounts would be below. */
  readonly runDir: string;
}

/** What exists on the node by class, found on the node itself and not in anybody's books. */
export function takeInventory({ cgroups, volume, runDirs, blanks, runDir }: Places): Inventory {
  const pids = cgroups.agentPids();
  const running = findAgents(cgroups);
  const agents = new Set(running.keys());
  const inCgroups = cgroups.list();
  return {
    processes: new Set([...agents, ...[...inCgroups].filter((id) => cgroups.isPopulated(id))]),
    cgroups: inCgroups,
    mounts: mountedIds(`${runDir}/sandboxes/`),
    // Nothing on the host holds one: a sandbox's network lives exactly as long as its agent.
    "network-namespaces": agents,
    "user-ids": idRangeOwners(running),
    uppers: new Set([...volume.list()].filter((id) => !blanks.uppers.has(id))),
    "run-directories": runDirs.list(),
    blanks: strayBlanks({ before: pids, after: cgroups.agentPids() }, running, blanks.uidBases),
  };
}

/** One sandbox for each range of user ids in use: two that share a range count as one, and are missed. */
function idRangeOwners(running: ReadonlyMap<string, readonly AgentProcess[]>): ReadonlySet<string> {
  const owners = new Map<string, string>();
  for (const [id, agents] of running) {
    for (const { pid } of agents) {
      const range = readIdMap(pid);
      if (range !== "") owners.set(range, id);
    }
  }
  return new Set(owners.values());
}

/**
 * Agents without a sandbox that nobody will give one: `user ids BASE`. They were there before the running ones were looked for and
 * still are: an agent's own child, on its way to its sandbox's cgroups, is with the agents for a moment only. An agent that has been
 * killed closes the files that tell whose it is before it is gone.
 */
function strayBlanks(
  pids: { readonly before: readonly number[]; readonly after: readonly number[] },
  running: ReadonlyMap<string, readonly AgentProcess[]>,
  known: ReadonlySet<number>,
): ReadonlySet<string> {
  const agents = new Set([...running.values()].flatMap((found) => found.map(({ pid }) => pid)));
  const bases = pids.before
    .filter((pid) => !agents.has(pid) && pids.after.includes(pid) && !isExiting(pid))
    .map((pid) => Number(readIdMap(pid).trim().split(/\s+/)[1]));
  // The launcher and its workers have the host's ids.
  return new Set(bases.filter((base) => base > 0 && !known.has(base)).map((base) => `user ids ${base}`));
}

/** Empty for a process that is gone. */
function readIdMap(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/uid_map`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return "";
    throw error;
  }
}

/** Ids that have a mount in the host's own namespace. There is none unless something went wrong. */
function mountedIds(prefix: string): ReadonlySet<string> {
  return new Set(
    readMounts()
      .filter(({ target }) => target.startsWith(prefix))
      .map(({ target }) => target.slice(prefix.length).split("/")[0] ?? ""),
  );
}
