import type {
  ArtifactView,
  CommandReply,
  CommandView,
  FileView,
  NodeView,
  ResourceCountView,
  SandboxView,
  SessionView,
  UsageView,
  WatchView,
} from "#api/index.ts";
import { edgeOf } from "#core/ids.ts";
import type { CommandResult, ResourceCount } from "#core/node.ts";
import type { CommandInfo, ExitStatus, FileInfo, ImageNotes, SandboxInfo, SessionInfo } from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";
import type { WatchEvent } from "#core/watch.ts";
import type { ArtifactRecord } from "#images/catalogue.ts";
import type { NodeSighting } from "../watcher/watcher.ts";
import { base64, textOrBytes } from "./bytes.ts";

/** A sandbox as the API shows it. */
export function sandboxView({ spec, ...info }: SandboxInfo): SandboxView {
  return present({
    id: spec.id,
    edge: edgeOf(spec.id),
    project: spec.project,
    backend: spec.backend,
    state: info.state,
    generation: info.generation,
    reason: info.reason,
    createdAtMs: info.createdAtMs,
    readyAtMs: info.readyAtMs,
    lastActivityAtMs: info.lastActivityAtMs,
    runningCommands: info.runningCommands,
    accelerator: info.accelerator,
    parent: spec.parent,
    base: spec.origin.base,
    workspace: spec.origin.workspace,
    toolkits: [...spec.origin.toolkits],
    artifacts: spec.origin.artifacts?.map((artifact) => ({ ...artifact })),
    resources: present({ ...spec.resources }),
    env: { ...spec.env },
    user: spec.user,
    workdir: spec.workdir,
    hostname: spec.hostname,
    rlimits: { ...spec.rlimits },
    computer: spec.computer === undefined ? undefined : { ...spec.computer },
    idleTimeoutMs: spec.lifetime.idleTimeoutMs,
    maxLifetimeMs: spec.lifetime.maxLifetimeMs,
    labels: { ...spec.labels },
  });
}

/** A command as the API shows it. */
export function commandView(info: CommandInfo): CommandView {
  return {
    id: info.id,
    argv: info.argv.map(textOrBytes),
    pid: info.pid,
    ...(info.terminal === undefined ? {} : { terminal: { ...info.terminal } }),
    waitFor: info.waitFor,
    startedAtMs: info.startedAtMs,
    ...(info.session === undefined ? {} : { session: info.session }),
    ...(info.status === undefined ? {} : { status: statusView(info.status) }),
    stdout: { ...info.stdout },
    stderr: { ...info.stderr },
  };
}

/** A session as the API shows it. */
export function sessionView({ id, name, pid, startedAtMs, status }: SessionInfo): SessionView {
  return { id, name, pid, startedAtMs, ...(status === undefined ? {} : { status: statusView(status) }) };
}

/** The answer to a start, with what came of its output. */
export function commandReply({ command, output }: CommandResult): CommandReply {
  const view = commandView(command);
  if (output === undefined) return view;
  return { ...view, output: { stdout: base64(output.stdout), stderr: base64(output.stderr) } };
}

/** A directory entry as the API shows it. */
export function fileView({ name, target, mtimeNs, ...info }: FileInfo): FileView {
  return {
    name: textOrBytes(name),
    ...info,
    mtimeMs: Number(mtimeNs / 1_000_000n),
    mtimeNs: String(mtimeNs),
    ...(target === undefined ? {} : { target: textOrBytes(target) }),
  };
}

/** A sample of usage as the API shows it. */
export function usageView({ limits, oomVictims, ...usage }: SandboxUsage): UsageView {
  return { ...present(usage), oomVictims: oomVictims.map((victim) => ({ ...victim })), limits: present(limits) };
}

/** An event of a watch as the API shows it. */
export function watchView(event: WatchEvent): WatchView {
  if (event.type === "ready" || event.type === "overflow") return event;
  const from = event.type === "moved" ? { from: textOrBytes(event.from) } : {};
  return { type: event.type, path: textOrBytes(event.path), directory: event.directory, ...from };
}

/** An artifact as the API shows it. */
export function artifactView(record: ArtifactRecord): ArtifactView {
  const { layers, config, labels, parents, isPublished, tag, ...rest } = record;
  const { env, user, workdir, image, computer } = config;
  return {
    ...rest,
    ...(tag === "" ? {} : { tag }),
    layers: [...layers],
    config: present({
      env: { ...env },
      user,
      workdir,
      image: image === undefined ? undefined : imageView(image),
      computer: computer === undefined ? undefined : { ...computer },
    }),
    labels: { ...labels },
    parents: [...parents],
    published: isPublished,
  };
}

function imageView({ labels, command, entrypoint }: ImageNotes): NonNullable<ArtifactView["config"]["image"]> {
  return present({
    labels: labels === undefined ? undefined : { ...labels },
    command: command === undefined ? undefined : [...command],
    entrypoint: entrypoint === undefined ? undefined : [...entrypoint],
  });
}

/** A node as the API shows it. */
export function nodeView({ info, ageMs, lost, reason }: NodeSighting): NodeView {
  return present({
    edge: info.edge,
    state: lost ? ("lost" as const) : ("ready" as const),
    ageMs,
    reason,
    version: info.version,
    startedAtMs: info.startedAtMs,
    backends: [...info.backends],
    capacity: { ...info.capacity },
    promised: { ...info.promised },
    sandboxes: info.sandboxes,
    creating: info.creating,
  });
}

/** A count of resources as the API shows it. */
export function resourceView(count: ResourceCount): ResourceCountView {
  return { ...count, surplus: [...count.surplus] };
}

function statusView({
  cause,
  code,
  signal,
  wallMs,
  cpuMs,
  maxRssKiB,
  sessionEnded,
}: ExitStatus): NonNullable<CommandView["status"]> {
  return present({ cause, code, signal, wallMs, cpuMs, maxRssKiB, sessionEnded });
}

type Present<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/** Without the keys whose value is undefined: in the API what does not apply is absent. */
/** The fields that are there: JSON has no `undefined`. */
export function present<T extends object>(fields: T): Present<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<T>;
}
