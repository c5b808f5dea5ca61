import type { Backend, Handle } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { GuestLink, TaskReport } from "#core/guest.ts";

/** An agent that does not answer for so long is not alive. */
const ANSWER_MS = 5_000;

/** An agent reached, with what it knows. */
export interface Reached {
  readonly link: GuestLink;
  readonly reports: readonly TaskReport[];
}

/** How often and how long to try. */
export interface ReachOptions {
  readonly clock: Clock;
  /** A wait before each attempt. */
  readonly delaysMs: readonly number[];
  readonly signal: AbortSignal;
}

/**
 * Reaches the agent of a sandbox, with a wait before each attempt. Rejects with `SandboxLost` when the sandbox is dead, at once,
 * and after the last attempt.
 */
export async function reachAgent(backend: Backend, handle: Handle, options: ReachOptions): Promise<Reached> {
  let last: unknown;
  for (const delayMs of options.delaysMs) {
    if (delayMs > 0) await pause(options.clock, delayMs, options.signal);
    options.signal.throwIfAborted();
    try {
      return await attempt(backend, handle, options);
    } catch (error) {
      last = error;
      if (asSandboxError(error).kind === "SandboxLost") throw error;
    }
  }
  throw new SandboxError("SandboxLost", "the agent of the sandbox cannot be reached", { cause: last });
}

async function attempt(
  backend: Backend,
  handle: Handle,
  options: Pick<ReachOptions, "clock" | "signal">,
): Promise<Reached> {
  const controller = new AbortController();
  const giveUp = () => controller.abort(new SandboxError("Unavailable", `no answer within ${ANSWER_MS} ms`));
  const forward = () => controller.abort(options.signal.reason);
  using _timer = options.clock.after(ANSWER_MS, giveUp);
  options.signal.addEventListener("abort", forward, { once: true });
  try {
    const link = await backend.connect(handle, controller.signal);
    controller.signal.addEventListener("abort", () => link.close(), { once: true });
    try {
      const reports = await link.list();
      controller.signal.throwIfAborted();
      return { link, reports };
    } catch (error) {
      link.close();
      throw error;
    }
  } finally {
    options.signal.removeEventListener("abort", forward);
  }
}

function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      timer[Symbol.dispose]();
      reject(signal.reason);
    };
    const timer = clock.after(delayMs, () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
