import { type Clock, systemClock } from "#core/clock.ts";
import type { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";

/** Moments of a fake backend at which a script may act. */
export type FakeMoment =
  | "check"
  | "create"
  | "created"
  | "connect"
  | "recover"
  | "kill"
  | "destroy"
  | "usage"
  | "pack"
  | "copy"
  | "pause"
  | "resume";

/** Runs before each moment (`created`: after a create has made the sandbox). What it throws is what the call rejects with. */
export type FakeScript = (moment: FakeMoment, id: SandboxId) => void | Promise<void>;

/** How a fake node behaves. */
export interface FakeConfig {
  readonly clock: Clock;
  readonly script: FakeScript;
}

/** A node on which everything succeeds at once. */
export const FAKE_DEFAULTS: FakeConfig = { clock: systemClock, script: () => {} };

/** A script that fails the first `times` calls of a moment. */
export function failing(moment: FakeMoment, times: number, error: () => SandboxError): FakeScript {
  let left = times;
  return (now) => {
    if (now !== moment || left <= 0) return;
    left -= 1;
    throw error();
  };
}
