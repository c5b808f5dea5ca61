import type { Backend, Handle } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { UsageRead } from "#core/node.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import { waitAtMost } from "#edge/waiting/wait.ts";

/** A sample reads some fifteen files of the kernel: more often would show the watcher more than the watched. */
const LEAST_PERIOD_MS = 100;
const MIB = 1024 * 1024;

/** What a reader of usage needs of its sandbox. */
export interface UsageHost {
  readonly clock: Clock;
  /** The reader's. */
  readonly signal: AbortSignal;
  /** Aborts when the sandbox is on its way out, `Cancelled` when somebody wants that. */
  readonly leaving: AbortSignal;
  sample(): Promise<SandboxUsage>;
}

/**
 * Samples as `read` asks for them. They are taken when the reader wants them and kept by nobody: a sandbox that is not watched
 * costs nothing, and a reader that is late gets one new sample, not those it missed. Ends when the sandbox is removed.
 */
export async function* readUsage(
  { periodMs }: UsageRead,
  { clock, signal, leaving, sample }: UsageHost,
): AsyncGenerator<SandboxUsage, void, undefined> {
  if (periodMs !== undefined && !(periodMs >= LEAST_PERIOD_MS)) {
    throw new SandboxError("InvalidArgument", `periodMs ${periodMs} is below ${LEAST_PERIOD_MS}`);
  }
  yield await sample();
  if (periodMs === undefined) return;
  const left = Promise.withResolvers<void>();
  const leave = () => left.resolve();
  leaving.addEventListener("abort", leave, { once: true });
  try {
    while (!leaving.aborted) {
      await waitAtMost(left.promise, periodMs, { clock, signal });
      if (!leaving.aborted) yield await sample();
    }
  } finally {
    leaving.removeEventListener("abort", leave);
  }
  if (!(leaving.reason instanceof SandboxError && leaving.reason.kind === "Cancelled")) throw leaving.reason;
}

/** What a reader of usage needs, of a call about a sandbox. */
export function usageHost({ driver, clock, signal }: CommandCall): UsageHost {
  const sample = () => {
    const { backend, handle } = driver.beside("use");
    return sampleUsage(backend, { spec: driver.spec, handle, commands: driver.commands }, clock.now());
  };
  return { clock, signal, leaving: driver.leaving, sample };
}

/** One sample of a sandbox that has the handle, beside its limits. */
async function sampleUsage(
  backend: Backend,
  sandbox: {
    readonly spec: SandboxSpec;
    readonly handle: Handle | undefined;
    readonly commands: SandboxUsage["commands"];
  },
  atMs: number,
): Promise<SandboxUsage> {
  const { spec, handle, commands } = sandbox;
  if (handle === undefined) throw new Error("a ready sandbox has a handle");
  const { cpus, memoryMiB, swapMiB, pids, diskMiB } = spec.resources;
  const limits = {
    cpus,
    memoryBytes: memoryMiB * MIB,
    swapBytes: swapMiB * MIB,
    pids,
    diskBytes: diskMiB === undefined ? undefined : diskMiB * MIB,
  };
  const usage = await backend.usage(handle);
  const { running, recorded } = commands;
  return { id: spec.id, atMs, ...usage, limits, commands: { running, recorded } };
}
