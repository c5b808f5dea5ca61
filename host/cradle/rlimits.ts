import { readFileSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";
import type { Rlimit, RlimitName, SandboxSpec } from "#core/sandbox.ts";

/** How the kernel calls them in /proc/<pid>/limits. */
const KERNEL_NAMES: Readonly<Record<RlimitName, string>> = {
  core: "Max core file size",
  cpu: "Max cpu time",
  data: "Max data size",
  fsize: "Max file size",
  memlock: "Max locked memory",
  nofile: "Max open files",
  nproc: "Max processes",
  stack: "Max stack size",
};

/** The agent's arguments for a sandbox's resource limits. */
export function rlimitArgs(rlimits: SandboxSpec["rlimits"]): readonly string[] {
  return entries(rlimits).map(([name, limit]) => `--rlimit=${name}:${amount(limit.soft)}:${amount(limit.hard)}`);
}

/** Hard limits of this process, which no sandbox can exceed: only the host's own root may raise them. */
export function readHardLimits(file = "/proc/self/limits"): ReadonlyMap<RlimitName, number> {
  const lines = readFileSync(file, "utf8").split("\n");
  return new Map(
    entries(KERNEL_NAMES).map(([name, title]) => {
      const hard = lines
        .find((line) => line.startsWith(title))
        ?.slice(title.length)
        .trim()
        .split(/\s+/)[1];
      return [name, hard === undefined || hard === "unlimited" ? Number.POSITIVE_INFINITY : Number(hard)];
    }),
  );
}

/** Refuses limits that make no sense (`InvalidArgument`) or that this node cannot give (`FailedPrecondition`), by name. */
export function checkRlimits(rlimits: SandboxSpec["rlimits"], hardLimits: ReadonlyMap<RlimitName, number>): void {
  for (const [name, { soft, hard }] of entries(rlimits)) {
    if (
      ![soft, hard].every((value) => value === Number.POSITIVE_INFINITY || (Number.isSafeInteger(value) && value >= 0))
    ) {
      throw new SandboxError("InvalidArgument", `rlimit ${name} is not a whole number of 0 or more`);
    }
    if (soft > hard) throw new SandboxError("InvalidArgument", `rlimit ${name}: the soft limit is above the hard one`);
    const most = hardLimits.get(name) ?? Number.POSITIVE_INFINITY;
    if (hard > most) {
      throw new SandboxError("FailedPrecondition", `this node cannot give rlimit ${name} of ${amount(hard)}`, {
        hint: `ask for ${most} or less, or start the node with a higher hard limit (ulimit -H)`,
        details: { limit: `rlimit ${name}`, most },
      });
    }
  }
}

function amount(value: Rlimit["hard"]): string {
  return value === Number.POSITIVE_INFINITY ? "unlimited" : String(value);
}

/** The entries of a record with its keys' own type; absent ones are left out. */
function entries<K extends string, V>(record: Readonly<Partial<Record<K, V>>>): readonly [K, V][] {
  return Object.entries(record).filter((entry): entry is [K, V] => entry[1] !== undefined);
}
