import { SandboxError } from "#core/errors.ts";
import type { RlimitName, SandboxSpec } from "#core/sandbox.ts";
import { checkLeast } from "#core/spec-check.ts";
import type { CgroupLimits, Cgroups } from "#host/cgroup/cgroups.ts";
import { checkHostname } from "#host/cradle/names.ts";
import { checkRlimits } from "#host/cradle/rlimits.ts";
import { processorsOf } from "./sizes.ts";

/** Below it, the guest's kernel kills the first program before it has done anything. */
const LEAST_MEMORY_MIB = 16;
/** Below it, the file system has more structures than room. */
const LEAST_DISK_MIB = 4;
/** QEMU's largest q35 has more; a guest with more processors than the host has only waits. */
const MOST_PROCESSORS = 64;
/** The agent's helper that starts commands lives inside the sandbox's limits, and is none of its processes. */
export const HELPER_PIDS = 1;
/** What the guest's first process leaves to sandboxes: guest/agent/machine_boot.c. */
const HARD_LIMITS: ReadonlyMap<RlimitName, number> = new Map([["nofile", 1_048_576]]);

/** Refuses by name what this node cannot enforce, without looking at layers. */
export function checkSpec(spec: SandboxSpec, cgroups: Pick<Cgroups, "check">): void {
  const { resources } = spec;
  checkLeast(spec, { backend: "microvm", memoryMiB: LEAST_MEMORY_MIB });
  checkHostname(spec.hostname);
  if (resources.diskMiB !== undefined && !(resources.diskMiB >= LEAST_DISK_MIB)) {
    throw new SandboxError("InvalidArgument", `diskMiB ${resources.diskMiB} is below ${LEAST_DISK_MIB}`);
  }
  if (resources.swapMiB !== 0) {
    throw new SandboxError("FailedPrecondition", "microVMs have no swap", {
      hint: "ask for more memory instead",
      details: { limit: "swap limit" },
    });
  }
  if (processorsOf(spec) > MOST_PROCESSORS) {
    throw new SandboxError("InvalidArgument", `cpus ${resources.cpus} is above ${MOST_PROCESSORS}`);
  }
  cgroups.check(monitorLimits(spec));
  checkRlimits(spec.rlimits, HARD_LIMITS);
}

/** What QEMU and the guest's kernel take on top of the sandbox's memory: translated code, devices, buffers. */
const MONITOR_MIB = 320;
/** Threads of QEMU: processors, its loop, and those that wait for disks. */
const MONITOR_PIDS = 256;

/** Limits of the monitor's cgroups on the host; what is inside is bounded by the guest's own. */
export function monitorLimits({ resources }: SandboxSpec): CgroupLimits {
  return { cpus: resources.cpus, memoryMiB: resources.memoryMiB + MONITOR_MIB, swapMiB: 0, pids: MONITOR_PIDS };
}
