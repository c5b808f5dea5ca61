import { SandboxError } from "#core/errors.ts";
import { type ComputerShape, DEFAULT_RESOURCES, type SandboxSpec } from "#core/sandbox.ts";
import { checkLeast } from "#core/spec-check.ts";
import type { CgroupLimits, Cgroups } from "#host/cgroup/cgroups.ts";

/** What a BIOS needs to say that it finds no more. */
const LEAST_MEMORY_MIB = 16;
/** QEMU's machines have more; a guest with more processors than the host has only waits. */
const MOST_PROCESSORS = 64;

/** Refuses by name what this node cannot enforce. Returns what the computer is made of. */
export function checkSpec(spec: SandboxSpec, cgroups: Pick<Cgroups, "check">): ComputerShape {
  const { resources, computer } = spec;
  checkLeast(spec, { backend: "vm", memoryMiB: LEAST_MEMORY_MIB });
  if (computer === undefined) throw new SandboxError("InvalidArgument", "a full VM needs a firmware and devices");
  if (spec.layers.length !== 1) {
    throw new SandboxError(
      "InvalidArgument",
      "a full VM begins with one vm-image, and takes no workspace and no toolkits",
    );
  }
  if (processorsOf(spec) > MOST_PROCESSORS) {
    throw new SandboxError("InvalidArgument", `cpus ${resources.cpus} is above ${MOST_PROCESSORS}`);
  }
  if (resources.swapMiB !== 0) throw unenforced("swap limit", "its system decides about swap");
  if (resources.pids !== DEFAULT_RESOURCES.pids) throw unenforced("pids limit", "its system decides about processes");
  if (Object.keys(spec.rlimits).length > 0) throw unenforced("rlimits", "its system decides about its processes");
  cgroups.check(monitorLimits(spec));
  return computer;
}

/** Processors of the computer: as many as the limit can keep busy. */
export function processorsOf({ resources }: SandboxSpec): number {
  return Math.max(1, Math.ceil(resources.cpus));
}

/** What QEMU takes on top of the computer's memory: translated code, its screen, devices, buffers. */
const MONITOR_MIB = 512;
/** Threads of QEMU: processors, its loop, its screen, and those that wait for disks. */
const MONITOR_PIDS = 256;

/** Limits of the monitor's cgroups on the host. */
export function monitorLimits({ resources }: SandboxSpec): CgroupLimits {
  return { cpus: resources.cpus, memoryMiB: resources.memoryMiB + MONITOR_MIB, swapMiB: 0, pids: MONITOR_PIDS };
}

function unenforced(limit: string, why: string): SandboxError {
  return new SandboxError("FailedPrecondition", `the ${limit} of a full VM cannot be set: ${why}`, {
    details: { limit },
  });
}
