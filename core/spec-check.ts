import { SandboxError } from "./errors.ts";
import type { BackendKind, SandboxSpec } from "./sandbox.ts";

/** What a backend asks of every sandbox that has layers and memory of its own. */
export interface LeastSpec {
  readonly backend: BackendKind;
  /** Below it, the kernel kills the first program before it has done anything. */
  readonly memoryMiB: number;
}

/** Refuses with `InvalidArgument` what no such backend can make, whatever its host enforces. */
export function checkLeast({ id, backend, layers, resources }: SandboxSpec, least: LeastSpec): void {
  if (backend !== least.backend) throw new Error(`sandbox ${id} is for the backend ${backend}`);
  if (layers.length === 0) throw new SandboxError("InvalidArgument", "a sandbox needs at least one layer");
  if (!(resources.memoryMiB >= least.memoryMiB)) {
    throw new SandboxError("InvalidArgument", `memoryMiB ${resources.memoryMiB} is below ${least.memoryMiB}`);
  }
  if (!Number.isSafeInteger(resources.pids) || resources.pids < 1) {
    throw new SandboxError("InvalidArgument", `pids ${resources.pids} is not a whole number of 1 or more`);
  }
}
