import type { Footprint, Inventory } from "#core/backend.ts";
import type { Cgroups } from "#host/cgroup/cgroups.ts";
import type { Volume } from "#host/volume/volume.ts";
import type { RunDirs } from "./run-dirs.ts";

/** A machine's namespaces and its user live and die with its process. Once dead, it keeps what its files need. */
export const FOOTPRINT: Footprint = {
  ready: new Set(["processes", "cgroups", "uppers", "run-directories"]),
  paused: new Set(["uppers", "run-directories"]),
  failed: new Set(["uppers", "run-directories"]),
};

const NOTHING: Inventory = {
  processes: new Set(),
  cgroups: new Set(),
  mounts: new Set(),
  "network-namespaces": new Set(),
  "user-ids": new Set(),
  uppers: new Set(),
  "run-directories": new Set(),
  blanks: new Set(),
};

/** What exists on the node by class, found on the node itself; nothing without a place to look. */
export function takeInventory(
  places: { readonly cgroups: Cgroups; readonly volume: Volume; readonly runDirs: RunDirs } | undefined,
): Inventory {
  if (places === undefined) return NOTHING;
  const { cgroups, volume, runDirs } = places;
  const inCgroups = cgroups.list();
  return {
    ...NOTHING,
    processes: new Set([...inCgroups].filter((id) => cgroups.isPopulated(id))),
    cgroups: inCgroups,
    uppers: volume.list(),
    "run-directories": runDirs.list(),
  };
}
