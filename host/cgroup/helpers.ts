import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type CgroupLayout, readLayout, unifiedOf } from "./layout.ts";
import { removeCgroup } from "./remove.ts";

/** Where processes live that outlive a node: whatever ends the node's own cgroup, as a service manager does, leaves them alone. */
export interface HelperCgroup {
  /** To be joined, one directory a tree; none on a host without the tree that service managers use. */
  readonly dirs: readonly string[];
  /** To be called when its processes have ended. */
  remove(): Promise<void>;
}

/** Makes the cgroup `<node>.<helper>` beside the node's own, or finds it. */
export function openHelperCgroup(node: string, helper: string, layout: CgroupLayout = readLayout()): HelperCgroup {
  const tree = unifiedOf(layout);
  const dirs = tree === undefined ? [] : [join(tree.mount, "dsec", `${node}.${helper}`)];
  for (const dir of dirs) mkdirSync(dir, { recursive: true });
  return { dirs, remove: async () => void (await Promise.all(dirs.map((dir) => removeCgroup(dir)))) };
}
