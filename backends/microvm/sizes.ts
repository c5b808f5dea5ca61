import type { SandboxSpec } from "#core/sandbox.ts";

/** The guest's kernel, its page tables, the agent and the launcher: a sandbox of a machine has as much as one of a container. */
const GUEST_MIB = 96;

/** Memory of machines comes in steps, so that few templates serve all: what nobody touches costs nothing, and the limit is the guest's. */
const [SMALL_STEP_MIB, LARGE_STEP_MIB, SMALL_MIB] = [128, 1024, 1024];

/** Memory of the machine. */
export function machineMemoryMiB({ resources }: SandboxSpec): number {
  const needed = resources.memoryMiB + GUEST_MIB;
  const step = needed <= SMALL_MIB ? SMALL_STEP_MIB : LARGE_STEP_MIB;
  return step * Math.ceil(needed / step);
}

/** Processors of the machine: as many as the limit can keep busy. */
export function processorsOf({ resources }: SandboxSpec): number {
  return Math.max(1, Math.ceil(resources.cpus));
}
