import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { mkdir, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { CONTROLLERS, type Controller, type NodeTree } from "./layout.ts";
import { agentWrites, type CgroupFeatures } from "./limits.ts";

/** Makes the node's directory and its `agents` cgroup in every tree; in v2 trees hands the controllers down first. */
export async function prepareTrees(trees: readonly NodeTree[], agents: string): Promise<void> {
  for (const { tree, dir } of trees) {
    await mkdir(join(dir, agents), { recursive: true });
    if (tree.version === 2) {
      for (const parent of [tree.mount, dirname(dir), dir]) handDown(parent, tree.controllers);
    }
    for (const [file, value] of agentWrites(tree)) writeFileSync(join(dir, agents, file), value);
  }
}

/** Removes what `prepareTrees` made. What is in use, by a sandbox or by another node, stays. */
export async function removeTrees(trees: readonly NodeTree[], agents: string): Promise<void> {
  for (const { dir } of trees) {
    for (const path of [join(dir, agents), dir, dirname(dir)]) {
      try {
        await rmdir(path);
      } catch (error) {
        if (!hasCode(error, "ENOENT", "EBUSY", "ENOTEMPTY")) throw error;
      }
    }
  }
}

/** What can be limited, seen from the files of the `agents` cgroup. */
export function readFeatures(trees: readonly NodeTree[], agents: string, swapsFile = "/proc/swaps"): CgroupFeatures {
  const has = (controller: Controller, v1: string, v2: string) =>
    trees.some(
      ({ tree, dir }) =>
        tree.controllers.has(controller) && existsSync(join(dir, agents, tree.version === 1 ? v1 : v2)),
    );
  const swapLimit = has("memory", "memory.memsw.limit_in_bytes", "memory.swap.max");
  return {
    controllers: new Set(CONTROLLERS.filter((name) => trees.some(({ tree }) => tree.controllers.has(name)))),
    cpuQuota: has("cpu", "cpu.cfs_quota_us", "cpu.max"),
    swapLimit,
    swapAvoidable: swapLimit || has("memory", "memory.swappiness", "memory.swap.max") || !hasSwap(swapsFile),
  };
}

/** The file has a heading, then a line for each swap space. */
function hasSwap(swapsFile: string): boolean {
  return readFileSync(swapsFile, "utf8").trim().split("\n").length > 1;
}

function handDown(parent: string, controllers: ReadonlySet<Controller>): void {
  if (controllers.size === 0) return;
  const file = join(parent, "cgroup.subtree_control");
  const active = readFileSync(file, "utf8").trim().split(" ");
  const missing = [...controllers].filter((name) => !active.includes(name));
  if (missing.length === 0) return;
  try {
    writeFileSync(file, missing.map((name) => `+${name}`).join(" "));
  } catch (error) {
    throw new SandboxError("FailedPrecondition", `cgroup ${parent} does not hand down ${missing.join(", ")}`, {
      cause: error,
      hint: "run the node on the host itself, or in a container whose own processes sit below its cgroup root",
    });
  }
}
