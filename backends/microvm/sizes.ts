import type { SandboxSpec } from "#core/sandbox.ts";

/** The guest's kernel, its page tables, the agent and the launcher: a sandbox of a machine has as much as one of a container. */
const GUEST_MIB = 96;

/** Memory of the machine. Even, as the kernel hands it out in pages of 2 MiB. */
export function machineMemoryMiB({ resources }: SandboxSpec): number {
  return 2 * Math.ceil((resources.memoryMiB + GUEST_MIB) / 2);
}

/** Processors of the machine: as many as the limit can keep busy. */
export function processorsOf({ resources }: SandboxSpec): number {
  return Math.max(1, Math.ceil(resources.cpus));
}
