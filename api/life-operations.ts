import { BASE, type Operation } from "./operation.ts";
import { SandboxPatch, SandboxView } from "./sandboxes.ts";

const SANDBOX = "/v1/sandboxes/{id}";

/** The calls that change how long a sandbox lives, and whether it runs meanwhile. */
export const LIFE_OPERATIONS = {
  extendSandbox: {
    ...BASE,
    method: "PATCH",
    path: SANDBOX,
    summary: "Move its time limits.",
    body: SandboxPatch,
    reply: SandboxView,
  },
  pauseSandbox: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/pause`,
    summary: "Save it as it is, processes and all, and give its compute back; whatever is asked of it resumes it.",
    reply: SandboxView,
  },
  resumeSandbox: {
    ...BASE,
    method: "POST",
    path: `${SANDBOX}/resume`,
    summary: "Let it go on where it was; answers when it is ready.",
    reply: SandboxView,
  },
  removeSandbox: {
    ...BASE,
    method: "DELETE",
    path: SANDBOX,
    summary: "Remove it, in any state and more than once; answers when nothing of it is left.",
    status: 204,
  },
} as const satisfies Record<string, Operation>;
