import { SandboxError } from "#core/errors.ts";

//                ┌─ resuming ◄─ paused     A sandbox whose agent is gone falls to `failed`: its compute is given back, its
//                ▼                 ▲       files stay until its lifetime ends. A paused one has given its compute back, too,
//   creating ─► ready ──► pausing ─┘       and goes on where it was. `destroyed` is terminal and forgotten.
//       │         ├──────► failed
//       └─────────┴──► destroying ─► destroyed       (`destroying` and, from the middle of a move, `failed` from anywhere)

/** Every state a sandbox can be in, in the order of its life. */
export const STATES = [
  "creating",
  "ready",
  "pausing",
  "paused",
  "resuming",
  "failed",
  "destroying",
  "destroyed",
] as const;
export type SandboxState = (typeof STATES)[number];

/**
 * What callers may ask of a sandbox. `use` is every command; `files` is file access; `pack` makes an artifact of what it wrote,
 * `fork` more sandboxes; `extend` moves its time limits. What a paused sandbox accepts of `use`, `files` and `pack` resumes it first, and `fork` where what is saved cannot be copied.
 */
const VERBS = ["use", "files", "pack", "fork", "pause", "resume", "extend", "destroy"] as const;
export type Verb = (typeof VERBS)[number];

/** `ignore`: already there or on the way, answer success. `deny`: answer FailedPrecondition. */
export type Verdict = "accept" | "ignore" | "deny";

/** What each verb meets in each state. */
// biome-ignore format: a table is read by column
export const RULES: Readonly<Record<Verb, Readonly<Record<SandboxState, Verdict>>>> = {
  use:     { creating: "deny",   ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny" },
  files:   { creating: "deny",   ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny" },
  pack:    { creating: "deny",   ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "accept", destroying: "deny",   destroyed: "deny" },
  fork:    { creating: "deny",   ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "accept", destroying: "deny",   destroyed: "deny" },
  pause:   { creating: "deny",   ready: "accept", pausing: "accept", paused: "ignore", resuming: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny" },
  resume:  { creating: "deny",   ready: "ignore", pausing: "accept", paused: "accept", resuming: "accept", failed: "deny",   destroying: "deny",   destroyed: "deny" },
  extend:  { creating: "accept", ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "accept", destroying: "deny",   destroyed: "deny" },
  destroy: { creating: "accept", ready: "accept", pausing: "accept", paused: "accept", resuming: "accept", failed: "accept", destroying: "ignore", destroyed: "ignore" },
};

/** Every change of state the driver may make; anything else is a programmer error. */
const CHANGES: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  // A copy may be saved without having run.
  creating: ["ready", "paused", "failed", "destroying"],
  ready: ["pausing", "failed", "destroying"],
  // One that cannot be saved goes on.
  pausing: ["paused", "ready", "resuming", "failed", "destroying"],
  paused: ["resuming", "failed", "destroying"],
  // One that cannot be brought back now stays saved.
  resuming: ["resuming", "ready", "paused", "failed", "destroying"],
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
