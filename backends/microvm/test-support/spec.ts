import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type LayerDigest, type Resources, type SandboxSpec } from "#core/sandbox.ts";

/** A microVM with the default limits, but for what is given. */
export function aSpec(resources: Partial<Resources> = {}, change: Partial<SandboxSpec> = {}): SandboxSpec {
  return {
    id: newSandboxId(parseEdgeId("t1")),
    project: "test",
    backend: "microvm",
    layers: [`sha256:${"0".repeat(64)}` as LayerDigest],
    config: { env: {}, user: undefined, workdir: undefined },
    hostname: "sandbox",
    env: {},
    user: "root",
    workdir: "/",
    resources: { ...DEFAULT_RESOURCES, ...resources },
    rlimits: {},
    lifetime: { idleTimeoutMs: undefined, maxLifetimeMs: undefined },
    labels: {},
    origin: { base: "base", workspace: undefined, toolkits: [] },
    ...change,
  };
}
