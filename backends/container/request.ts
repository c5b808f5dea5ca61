import type { Place } from "#core/backend.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { CgroupPlan } from "#host/cgroup/cgroups.ts";
import type { CradleRequest } from "#host/cradle/client.ts";
import type { Upper } from "#host/volume/volume.ts";
import type { ContainerConfig } from "./config.ts";
import { uidBaseOf } from "./id-ranges.ts";
import { rlimitArgs } from "./rlimits.ts";

const MIB = 1024 * 1024;

/** What has been prepared for a sandbox when its launcher is asked. */
export interface Prepared {
  readonly layers: readonly string[];
  readonly upper: Upper;
  readonly cgroups: readonly CgroupPlan[];
  readonly agentCgroups: readonly string[];
  readonly socketPath: string;
  /** Where commands start; `undefined`: anywhere. */
  readonly processors: string | undefined;
}

/** The launcher's request for one sandbox. Pure. */
export function launchRequest(
  spec: SandboxSpec,
  place: Place,
  prepared: Prepared,
  config: ContainerConfig,
): CradleRequest {
  return {
    id: spec.id,
    uidBase: uidBaseOf(place, config.firstUid),
    layers: prepared.layers,
    upperDir: prepared.upper.upperDir,
    workDir: prepared.upper.workDir,
    hostname: spec.hostname,
    hosts: hostsFile(spec.hostname),
    // The sandbox has its loopback only: a resolver would be asked in vain, and time out.
    resolvConf: "",
    socketPath: prepared.socketPath,
    agentArgs: [...processorArgs(prepared.processors), ...rlimitArgs(spec.rlimits)],
    cgroups: prepared.cgroups,
    agentCgroups: prepared.agentCgroups,
    shmBytes: config.shmSize * MIB,
  };
}

function processorArgs(processors: string | undefined): readonly string[] {
  return processors === undefined ? [] : [`--processors=${processors}`];
}

function hostsFile(hostname: string): string {
  return `127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t${hostname}\n`;
}
