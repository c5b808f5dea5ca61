import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CgroupPlan } from "./cgroups.ts";

/** Makes what is planned, with its limits in force. Gives the files that a process joins by. What it throws for may be half made. */
export function makeCgroups(plans: readonly CgroupPlan[]): readonly string[] {
  for (const { dir, writes } of plans) {
    mkdirSync(dir, { recursive: true });
    for (const [file, value] of writes) writeFileSync(join(dir, file), value);
  }
  return plans.map(({ dir }) => join(dir, "cgroup.procs"));
}
