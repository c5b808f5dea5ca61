import { SandboxError } from "#core/errors.ts";

//   creating ─► ready ──► failed      A sandbox whose agent is gone falls to `failed`: its compute is given back, its
//       │         │         │         files stay until its lifetime ends. `destroyed` is terminal and forgotten.
//       └─────────┴────┬────┘
//                 destroying ─► destroyed

/** Every state a sandbox can be in, in the order of its life. */
export const STATES = ["creating", "ready", "failed", "destroying", "destroyed"] as const;
export type SandboxState = (typeof STATES)[number];

/**
 * What callers may ask of a sandbox. `use` is every command; `files` is file access; `pack` makes an artifact of what it wrote,
 * `fork` more sandboxes; `extend` moves its time limits.
 */
const VERBS = ["use", "files", "pack", "fork", "extend", "destroy"] as const;
export type Verb = (typeof VERBS)[number];

/** `ignore`: already there or on the way, answer success. `deny`: answer FailedPrecondition. */
export type Verdict = "accept" | "ignore" | "deny";

/** What each verb meets in each state. */
// biome-ignore format: a table is read by column
export const RULES: Readonly<Record<Verb, Readonly<Record<SandboxState, Verdict>>>> = {
  use:     { creating: "deny",   ready: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny"   },
  files:   { creating: "deny",   ready: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny"   },
  pack:    { creating: "deny",   ready: "accept", failed: "accept", destroying: "deny",   destroyed: "deny"   },
  fork:    { creating: "deny",   ready: "accept", failed: "accept", destroying: "deny",   destroyed: "deny"   },
  extend:  { creating: "accept", ready: "accept", failed: "accept", destroying: "deny",   destroyed: "deny"   },
  destroy: { creating: "accept", ready: "accept", failed: "accept", destroying: "ignore", destroyed: "ignore" },
};

/** Every change of state the driver may make; anything else is a programmer error. */
const CHANGES: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  creating: ["ready", "failed", "destroying"],
  ready: ["failed", "destroying"],
  failed: ["destroying"],
  destroying: ["destroyed"],
  destroyed: [],
};

/** True: act. False: success without acting. Throws `FailedPrecondition` when the state forbids the verb. */
export function admit(verb: Verb, state: SandboxState, reason?: string): boolean {
  const verdict = RULES[verb][state];
  if (verdict === "deny") {
    throw new SandboxError("FailedPrecondition", `a sandbox that is ${state} does not take ${verb}`, {
      details: { state, verb, ...(reason === undefined ? {} : { reason }) },
      hint: state === "creating" ? "wait until it is ready" : "create another sandbox",
    });
  }
  return verdict === "accept";
}

/** Throws a plain `Error` for a change that the table above does not have. */
export function assertChange(from: SandboxState, to: SandboxState): void {
  if (!CHANGES[from].includes(to)) throw new Error(`illegal change of state: ${from} to ${to}`);
}
