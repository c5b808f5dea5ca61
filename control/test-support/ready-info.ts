import type { SandboxInfo, SandboxSpec } from "#core/sandbox.ts";

/** What a node tells of a sandbox that was just made. */
export function readyInfo(spec: SandboxSpec): SandboxInfo {
  return {
    spec,
    state: "ready",
    generation: 2,
    createdAtMs: 1,
    readyAtMs: 2,
    lastActivityAtMs: 2,
    reason: undefined,
    runningCommands: 0,
  };
}
