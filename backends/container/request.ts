import type { Place } from "#core/backend.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { CgroupPlan } from "#host/cgroup/cgroups.ts";
import type { BlankRequest, CradleRequest } from "#host/cradle/client.ts";
import { hostsFile } from "#host/cradle/names.ts";
import { rlimitArgs } from "#host/cradle/rlimits.ts";
import { uidBaseOf } from "#host/id-ranges.ts";
import type { Upper } from "#host/volume/volume.ts";
import type { ContainerConfig } from "./config.ts";

const MIB = 1024 * 1024;

/** What the launcher needs to know of a place before anybody asks for a sandbox there, but for the socket. Pure. */
export function blankRequest(
  place: Place,
  agentCgroups: readonly string[],
  config: ContainerConfig,
): Omit<BlankRequest, "socketPath"> {
  return { uidBase: uidBaseOf(place, config.firstUid), agentCgroups, shmBytes: config.shmSize * MIB };
}

/** What has been prepared for a sandbox when its launcher is asked. */
export interface Prepared {
  readonly layers: readonly string[];
  readonly upper: Upper;
  readonly cgroups: readonly CgroupPlan[];
  readonly agentCgroups: readonly string[];
  readonly socketPath: string;
  /** Where commands start; `undefined`: anywhere. */
  readonly processors: string | undefined;
  /** AppArmor profile of what runs in the sandbox. */
  readonly profile: string | undefined;
}

/** The launcher's request for one sandbox. Pure. */
export function launchRequest(
  spec: SandboxSpec,
  place: Place,
  prepared: Prepared,
  config: ContainerConfig,
): CradleRequest {
  return {
    ...blankRequest(place, prepared.agentCgroups, config),
    id: spec.id,
    layers: prepared.layers,
    upperDir: prepared.upper.upperDir,
    workDir: prepared.upper.workDir,
    hostname: spec.hostname,
    hosts: hostsFile(spec.hostname),
    // The sandbox has its loopback only: a resolver would be asked in vain, and time out.
    resolvConf: "",
    socketPath: prepared.socketPath,
    agentArgs: [
      ...cellArgs(prepared.cgroups),
      ...processorArgs(prepared.processors),
      ...rlimitArgs(spec.rlimits),
      ...profileArgs(prepared.profile),
    ],
    cgroups: prepared.cgroups,
  };
}

function cellArgs(cgroups: readonly CgroupPlan[]): readonly string[] {
  const directories = cgroups.filter(({ delegate }) => delegate === true).length;
  return directories === 0 ? [] : [`--cells=${directories}`];
}

function processorArgs(processors: string | undefined): readonly string[] {
  return processors === undefined ? [] : [`--processors=${processors}`];
}

function profileArgs(profile: string | undefined): readonly string[] {
  return profile === undefined ? [] : [`--apparmor=${profile}`];
}
