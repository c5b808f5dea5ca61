import assert from "node:assert/strict";
import { DsecError, type Sandbox } from "#sdk";
import type { Operation, Outcome } from "./operations.ts";

/** Kills at random moments of each operation, beside those at its points. More of them find rarer orders. */
export const KILL_ROUNDS = Number(process.env.KILL_ROUNDS ?? 2);

/** Whatever takes longer hangs: a node may take half a minute to start on a busy machine. */
const LIMIT_MS = 240_000;

/** When to kill: as the operation gets to a point, after some time, or when it is over. */
export type Moment = { readonly point: number } | { readonly delayMs: number } | "afterwards";

/**
 * Does it and kills once: at that moment, or when it is over before. Says how it ended, by the kind of its error where it was one. What
 * hangs and what has no type is thrown.
 */
export async function interrupted(
  operation: Operation,
  sandbox: Sandbox,
  moment: Moment,
  kill: () => Promise<void>,
): Promise<Outcome | DsecError["kind"]> {
  let killing: Promise<void> | undefined;
  const killOnce = () => (killing ??= kill());
  let passed = 0;
  const reached = async () => {
    passed += 1;
    if (moment !== "afterwards" && "point" in moment && passed === moment.point) await killOnce();
  };
  const delayMs = moment !== "afterwards" && "delayMs" in moment ? moment.delayMs : undefined;
  const timer = delayMs === undefined ? undefined : setTimeout(() => void killOnce(), delayMs);
  try {
    return await within(operation.act(sandbox, reached), `${operation.name}, killed at ${JSON.stringify(moment)}`);
  } catch (error) {
    assert.ok(error instanceof DsecError, `not typed: ${error instanceof Error ? error.stack : error}`);
    return error.kind;
  } finally {
    clearTimeout(timer);
    await killOnce();
  }
}

async function within<T>(promise: Promise<T>, what: string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new assert.AssertionError({ message: `hangs: ${what}` })), LIMIT_MS);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
