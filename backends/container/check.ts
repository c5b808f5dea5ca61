import { SandboxError } from "#core/errors.ts";
import type { RlimitName, SandboxSpec } from "#core/sandbox.ts";
import { checkLeast } from "#core/spec-check.ts";
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
  checkLeast(spec, { backend: "container", memoryMiB: LEAST_MEMORY_MIB });
  checkHostname(spec.hostname);
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
