import { SandboxError } from "#core/errors.ts";
import type { Resources } from "#core/sandbox.ts";
import type { Controller, Hierarchy } from "./layout.ts";

/** The limits that cgroups enforce; the disk is the volume's. */
export type CgroupLimits = Pick<Resources, "cpus" | "memoryMiB" | "swapMiB" | "pids">;

/** A file of a cgroup and what to write into it. */
export type CgroupWrite = readonly [file: string, value: string];

/** What the kernel of this host can limit, found by looking at a real cgroup. */
export interface CgroupFeatures {
  readonly controllers: ReadonlySet<Controller>;
  /** Quotas of CPU time per period (CONFIG_CFS_BANDWIDTH). */
  readonly cpuQuota: boolean;
  /** A limit of swap apart from memory (swap accounting). */
  readonly swapLimit: boolean;
  /** A sandbox that asked for no swap gets none: by the limit, by v1's swappiness of 0, or because the host has none. */
  readonly swapAvoidable: boolean;
}

/** The scheduler's own bounds: a period of 100 ms is its default, a quota below 1 ms is refused by the kernel. */
const CPU_PERIOD_US = 100_000;
const MIN_CPU_QUOTA_US = 1_000;
const MIN_CPUS = MIN_CPU_QUOTA_US / CPU_PERIOD_US;

/** Refuses by name what this host cannot enforce, and values that the kernel would refuse. Pure. */
export function checkLimits(limits: CgroupLimits, features: CgroupFeatures): void {
  for (const controller of ["cpu", "memory", "pids"] as const) {
    if (!features.controllers.has(controller)) {
      refuse(`${controller} limit`, `the kernel offers no ${controller} cgroup controller here`);
    }
  }
  if (!features.cpuQuota) refuse("cpu limit", "the kernel has no CFS bandwidth control");
  if (limits.swapMiB > 0 ? !features.swapLimit : !features.swapAvoidable) {
    refuse("swap limit", "the kernel does not account swap; boot with swapaccount=1, or run without swap");
  }
  if (!(limits.cpus >= MIN_CPUS)) {
    throw new SandboxError(
      "InvalidArgument",
      `cpus ${limits.cpus} is below ${MIN_CPUS}, the least the kernel schedules`,
    );
  }
}

/** The writes that put the limits in force in one tree; in this order, which the kernel's checks need. Pure. */
export function limitWrites(
  hierarchy: Pick<Hierarchy, "version" | "controllers">,
  limits: CgroupLimits,
  features: CgroupFeatures,
): readonly CgroupWrite[] {
  const make = hierarchy.version === 1 ? V1 : V2;
  return [...hierarchy.controllers].flatMap((controller) => make[controller](limits, features));
}

/** The writes for the cgroup where agents live: no limits, and first in line for the processor. Pure. */
export function agentWrites(hierarchy: Pick<Hierarchy, "version" | "controllers">): readonly CgroupWrite[] {
  if (!hierarchy.controllers.has("cpu")) return [];
  return hierarchy.version === 1 ? [["cpu.shares", "102400"]] : [["cpu.weight", "10000"]];
}

type Writer = (limits: CgroupLimits, features: CgroupFeatures) => readonly CgroupWrite[];

const V1: Readonly<Record<Controller, Writer>> = {
  cpu: ({ cpus }) => [
    ["cpu.shares", String(clamp(Math.round(cpus * 1024), 2, 262_144))],
    // The period is the kernel's own; to write it, too, would walk every group of the host a second time.
    ["cpu.cfs_quota_us", String(quotaUs(cpus))],
  ],
  // memsw counts memory and swap together, and may never be below the memory limit: so memory comes first.
  memory: ({ memoryMiB, swapMiB }, { swapLimit }) => [
    ["memory.limit_in_bytes", bytes(memoryMiB)],
    swapLimit ? ["memory.memsw.limit_in_bytes", bytes(memoryMiB + swapMiB)] : ["memory.swappiness", "0"],
  ],
  pids: ({ pids }) => [["pids.max", String(pids)]],
};

const V2: Readonly<Record<Controller, Writer>> = {
  cpu: ({ cpus }) => [
    ["cpu.weight", String(clamp(Math.round(cpus * 100), 1, 10_000))],
    ["cpu.max", `${quotaUs(cpus)} ${CPU_PERIOD_US}`],
  ],
  memory: ({ memoryMiB, swapMiB }, { swapLimit }) => [
    ["memory.max", bytes(memoryMiB)],
    ...(swapLimit ? [["memory.swap.max", bytes(swapMiB)] as const] : []),
  ],
  pids: ({ pids }) => [["pids.max", String(pids)]],
};

function quotaUs(cpus: number): number {
  return Math.max(MIN_CPU_QUOTA_US, Math.round(cpus * CPU_PERIOD_US));
}

function bytes(mebibytes: number): string {
  return String(Math.round(mebibytes * 1024 * 1024));
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}

function refuse(what: string, why: string): never {
  throw new SandboxError("FailedPrecondition", `this node cannot enforce the ${what}`, {
    hint: why,
    details: { limit: what },
  });
}
