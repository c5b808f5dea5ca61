import type { Inventory } from "#core/backend.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import { readMounts } from "#host/sys/mountinfo.ts";
import type { Volume } from "#host/volume/volume.ts";
import { findAgents } from "./agents.ts";
import type { RunDirs } from "./run-dirs.ts";

/** Where to look. */
export interface Places {
  readonly cgroups: Cgroups;
  readonly volume: Volume;
  readonly runDirs: RunDirs;
  /** Sandboxes' mounts would be below. */
  readonly runDir: string;
}

/** What exists on the node by class, found on the node itself and not in anybody's books. */
export function takeInventory({ cgroups, volume, runDirs, runDir }: Places): Inventory {
  const agents = new Set(findAgents(cgroups).keys());
  const inCgroups = cgroups.list();
  return {
    processes: new Set([...agents, ...[...inCgroups].filter((id) => cgroups.isPopulated(id))]),
    cgroups: inCgroups,
    mounts: mountedIds(`${runDir}/sandboxes/`),
    // Nothing on the host holds one: a sandbox's network lives exactly as long as its agent.
    "network-namespaces": agents,
    uppers: volume.list(),
    "run-directories": runDirs.list(),
  };
}

/** Ids that have a mount in the host's own namespace. There is none unless something went wrong. */
function mountedIds(prefix: string): ReadonlySet<string> {
  return new Set(
    readMounts()
      .filter(({ target }) => target.startsWith(prefix))
      .map(({ target }) => target.slice(prefix.length).split("/")[0] ?? ""),
  );
}
