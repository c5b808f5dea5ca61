import type { Command } from "commander";
import type { CreateSandbox } from "#sdk";
import { pair, positive, several, sizeMiB, timeMs } from "./units.ts";

/** What `run` and `create` have in common, as commander gives it. */
export interface SpecOptions {
  readonly base: string;
  readonly workspace?: string;
  readonly workspaceAt?: string;
  readonly toolkit?: readonly string[];
  readonly backend?: CreateSandbox["backend"];
  readonly cpus?: number;
  readonly memory?: number;
  readonly swap?: number;
  readonly pids?: number;
  readonly disk?: number;
  readonly env?: Record<string, string>;
  readonly label?: Record<string, string>;
  readonly user?: string;
  readonly workdir?: string;
  readonly hostname?: string;
  readonly firmware?: NonNullable<CreateSandbox["computer"]>["firmware"];
  readonly devices?: NonNullable<CreateSandbox["computer"]>["devices"];
  readonly idleTimeout?: number;
  readonly maxLifetime?: number;
}

/** Adds the options that describe a sandbox. */
export function specOptions(command: Command): Command {
  return command
    .option("--base <name>", "base artifact", "debian")
    .option("--workspace <name|./dir>", "workspace artifact, or a directory that is imported first")
    .option("--workspace-at <path>", "directory of the sandbox at which an imported directory begins; / unless given")
    .option("--toolkit <name>", "toolkit artifact (may be given again)", several)
    .option("--backend <kind>", "how the sandbox runs")
    .option("--cpus <number>", "processor time as a multiple of one core", positive("--cpus"))
    .option("--memory <size>", "memory limit, such as 512MiB", sizeMiB("--memory"))
    .option("--swap <size>", "swap on top of the memory", sizeMiB("--swap"))
    .option("--pids <number>", "most processes and threads", positive("--pids"))
    .option("--disk <size>", "most bytes it may write", sizeMiB("--disk"))
    .option("-e, --env <name=value>", "environment (may be given again)", pair("--env"))
    .option("--label <name=value>", "label (may be given again)", pair("--label"))
    .option("-u, --user <user[:group]>", "who commands run as")
    .option("-w, --workdir <path>", "where commands start")
    .option("--hostname <name>", "host name inside")
    .option("--firmware <name>", "of a full VM: bios or uefi; what its image says unless given")
    .option("--devices <name>", "of a full VM: virtio or emulated; what its image says unless given")
    .option("--idle-timeout <time>", "removed when unused for so long", timeMs("--idle-timeout"))
    .option("--max-lifetime <time>", "removed so long after its creation", timeMs("--max-lifetime"));
}

/** The request for the options; `workspace` is the artifact's name once a directory has been imported. */
export function createRequest(options: SpecOptions, workspace: string | undefined): CreateSandbox {
  return compact({
    base: options.base,
    workspace,
    toolkits: options.toolkit === undefined ? undefined : [...options.toolkit],
    backend: options.backend,
    resources: resourcesOf(options),
    env: options.env,
    labels: options.label,
    user: options.user,
    workdir: options.workdir,
    hostname: options.hostname,
    computer: computerOf(options),
    idleTimeoutMs: options.idleTimeout,
    maxLifetimeMs: options.maxLifetime,
  });
}

function resourcesOf(options: SpecOptions): CreateSandbox["resources"] {
  const { cpus, memory: memoryMiB, swap: swapMiB, pids, disk: diskMiB } = options;
  const resources = compact({ cpus, memoryMiB, swapMiB, pids, diskMiB });
  return Object.keys(resources).length === 0 ? undefined : resources;
}

function computerOf({ firmware, devices }: SpecOptions): CreateSandbox["computer"] {
  const computer = compact({ firmware, devices });
  return Object.keys(computer).length === 0 ? undefined : computer;
}

type Compact<T> = { [K in keyof T]?: Exclude<T[K], undefined> } & {
  [K in keyof T as undefined extends T[K] ? never : K]: T[K];
};

/** The same object without what is undefined: absent and undefined differ in what is sent. */
export function compact<T extends object>(fields: T): Compact<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Compact<T>;
}
