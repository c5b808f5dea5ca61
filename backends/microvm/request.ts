import type { SandboxSpec } from "#core/sandbox.ts";
import { limitWrites } from "#host/cgroup/limits.ts";
import { hostsFile } from "#host/cradle/names.ts";
import { rlimitArgs } from "#host/cradle/rlimits.ts";
import { createBody } from "#host/cradle/wire.ts";
import { HELPER_PIDS } from "./check.ts";

/** First id of the sandbox inside its machine: whoever is root there is nobody in particular to the machine's kernel. */
const GUEST_UID_BASE = 131_072;
const SHM_BYTES = 64 * 1024 * 1024;
const CGROUPS = "/sys/fs/cgroup";

/** What a guest's kernel can limit: processor time is limited on the host. */
const GUEST_TREE = { version: 2, controllers: new Set(["memory", "pids"] as const) } as const;
const GUEST_FEATURES = {
  controllers: GUEST_TREE.controllers,
  cpuQuota: false,
  swapLimit: false,
  swapAvoidable: true,
} as const;

/** What the launcher inside a machine is asked for. Paths are those that guest/agent/machine_*.c make. Pure. */
export function guestRequest(spec: SandboxSpec): Buffer {
  const limits = { ...spec.resources, pids: spec.resources.pids + HELPER_PIDS };
  return createBody({
    id: spec.id,
    uidBase: GUEST_UID_BASE,
    layers: spec.layers.map((_, number) => `/run/layers/${number}`),
    upperDir: "/run/upper/upper",
    workDir: "/run/upper/work",
    hostname: spec.hostname,
    hosts: hostsFile(spec.hostname),
    resolvConf: "",
    socketPath: "/run/agent.sock",
    agentArgs: rlimitArgs(spec.rlimits),
    cgroups: [{ dir: `${CGROUPS}/sandbox`, writes: limitWrites(GUEST_TREE, limits, GUEST_FEATURES), handOver: true }],
    agentCgroups: [`${CGROUPS}/agents`],
    shmBytes: SHM_BYTES,
  });
}
