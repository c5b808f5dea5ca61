import { SandboxError } from "#core/errors.ts";
import type { RlimitName, SandboxSpec } from "#core/sandbox.ts";
import type { CgroupLimits, Cgroups } from "#host/cgroup/cgroups.ts";
import { checkHostname } from "#host/cradle/names.ts";
import { checkRlimits } from "#host/cradle/rlimits.ts";
import type { Volume } from "#host/volume/volume.ts";

const MIB = 1024 * 1024;

/** Below it, the kernel kills the first program before it has done anything. */
const LEAST_MEMORY_MIB = 6;

/** The agent's helper that starts commands lives inside the sandbox's limits, and is none of its processes. */
export const HELPER_PIDS = 1;

/** What a sandbox is checked against. */
export interface Enforcement {
  readonly cgroups: Cgroups;
  readonly volume: Volume;
  readonly hardLimits: ReadonlyMap<RlimitName, number>;
}

/** Refuses by name what this node cannot enforce, without looking at layers. */
export function checkSpec(spec: SandboxSpec, { cgroups, volume, hardLimits }: Enforcement): void {
  const { resources } = spec;
  if (spec.backend !== "container") throw new Error(`sandbox ${spec.id} is for the backend ${spec.backend}`);
  if (spec.layers.length === 0) throw new SandboxError("InvalidArgument", "a sandbox needs at least one layer");
  checkHostname(spec.hostname);
  if (!(resources.memoryMiB >= LEAST_MEMORY_MIB)) {
    throw new SandboxError("InvalidArgument", `memoryMiB ${resources.memoryMiB} is below ${LEAST_MEMORY_MIB}`);
  }
  if (!Number.isSafeInteger(resources.pids) || resources.pids < 1) {
    throw new SandboxError("InvalidArgument", `pids ${resources.pids} is not a whole number of 1 or more`);
  }
  if (!(resources.swapMiB >= 0)) throw new SandboxError("InvalidArgument", `swapMiB ${resources.swapMiB} is below 0`);
  cgroups.check(limitsOf(spec));
  volume.checkLimit(diskLimitBytes(spec));
  checkRlimits(spec.rlimits, hardLimits);
}

/** The cgroup limits of a sandbox. */
export function limitsOf({ resources }: SandboxSpec): CgroupLimits {
  return { ...resources, pids: resources.pids + HELPER_PIDS };
}

/** The limit of a sandbox's upper, in bytes. */
export function diskLimitBytes({ resources }: SandboxSpec): number | undefined {
  return resources.diskMiB === undefined ? undefined : Math.round(resources.diskMiB * MIB);
}
