import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type MountEntry, readMounts } from "#host/sys/mountinfo.ts";

/** The controllers that limits of a sandbox need. */
export const CONTROLLERS = ["cpu", "memory", "pids"] as const;
export type Controller = (typeof CONTROLLERS)[number];

/** Holds processes still where there is no v2 tree, which can do it without a controller. */
const FREEZER = "freezer";

/** One mounted tree of cgroups. A v2 tree in a hybrid host has no controllers but still kills and counts CPU time. */
export interface Hierarchy {
  readonly version: 1 | 2;
  /** Where the tree is mounted. */
  readonly mount: string;
  readonly controllers: ReadonlySet<Controller>;
  /** Its cgroups can be held still: a v2 tree, or v1's freezer where there is none. */
  readonly freezes?: boolean;
}

/** What this host's cgroups look like: `v2`, `hybrid` (controllers in v1, an empty v2 tree beside), `v1`, or `none`. */
export interface CgroupLayout {
  readonly mode: "v2" | "hybrid" | "v1" | "none";
  /** Only those that a sandbox needs. The v2 tree, when there is one, comes last. */
  readonly hierarchies: readonly Hierarchy[];
}

/** A directory of a node, or of one of its sandboxes, in one tree. */
export interface NodeTree {
  readonly tree: Hierarchy;
  readonly dir: string;
}

/** Reads the layout from the mounts of this process. */
export function readLayout(mounts: readonly MountEntry[] = readMounts()): CgroupLayout {
  const hierarchies: Hierarchy[] = [];
  const taken = new Set<Controller>();
  const unified = mounts.find((entry) => entry.fstype === "cgroup2");
  for (const entry of mounts) {
    if (entry.fstype !== "cgroup") continue;
    const controllers = CONTROLLERS.filter((name) => entry.options.includes(name) && !taken.has(name));
    const freezes = unified === undefined && entry.options.includes(FREEZER);
    if (controllers.length === 0 && !freezes) continue;
    for (const name of controllers) taken.add(name);
    hierarchies.push({ version: 1, mount: entry.target, controllers: new Set(controllers), freezes });
  }
  if (unified !== undefined) {
    const available = readV2Controllers(unified.target);
    const controllers = CONTROLLERS.filter((name) => available.includes(name) && !taken.has(name));
    hierarchies.push({ version: 2, mount: unified.target, controllers: new Set(controllers), freezes: true });
  }
  return { mode: modeOf(taken.size > 0, unified !== undefined), hierarchies };
}

/** The v2 tree, with or without controllers. */
export function unifiedOf(layout: CgroupLayout): Hierarchy | undefined {
  return layout.hierarchies.find((tree) => tree.version === 2);
}

function modeOf(hasV1: boolean, hasV2: boolean): CgroupLayout["mode"] {
  if (hasV1) return hasV2 ? "hybrid" : "v1";
  return hasV2 ? "v2" : "none";
}

function readV2Controllers(mount: string): readonly string[] {
  const file = join(mount, "cgroup.controllers");
  return existsSync(file) ? readFileSync(file, "utf8").trim().split(" ") : [];
}
