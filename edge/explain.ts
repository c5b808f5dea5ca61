import { setImmediate as turn } from "node:timers/promises";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { SandboxDriver } from "#edge/driver.ts";

/**
 * Rejects with what is to be told of an operation that failed. A connection to the agent that broke says nothing by itself: when it is
 * known what it meant, that is `SandboxLost`, or the error as it was, when the agent is there again and the call can be made again.
 */
export async function explain(
  error: unknown,
  { driver, signal }: { readonly driver: SandboxDriver; readonly signal: AbortSignal },
): Promise<never> {
  if (asSandboxError(error).kind !== "Unavailable") throw error;
  // Operations hear of the end of their link a moment before the driver does.
  await turn();
  if (driver.state === "ready") await driver.agent("use", signal);
  const { state, reason } = driver.info;
  if (state === "ready") throw error;
  throw new SandboxError("SandboxLost", `the sandbox was lost under the operation: ${reason ?? `it is ${state}`}`, {
    cause: error,
    hint: "create another sandbox",
  });
}
