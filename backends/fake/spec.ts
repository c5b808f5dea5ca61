import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type SandboxSpec } from "#core/sandbox.ts";

/** A sandbox that every fake node can make, with a new id of the edge `fake`. */
export function aFakeSpec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
  return {
    id: newSandboxId(parseEdgeId("fake")),
    project: "default",
    backend: "container",
    layers: [],
    config: { env: { PATH: "/bin" }, user: undefined, workdir: undefined },
    hostname: "sandbox",
    env: {},
    user: "root",
    workdir: "/",
    resources: DEFAULT_RESOURCES,
    rlimits: {},
    lifetime: { idleTimeoutMs: undefined, maxLifetimeMs: undefined },
    labels: {},
    origin: { base: "none", workspace: undefined, toolkits: [] },
    ...changes,
  };
}
