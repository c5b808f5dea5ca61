import type { CreateSandbox } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import {
  type BackendKind,
  type ComputerShape,
  DEFAULT_RESOURCES,
  type ImageConfig,
  type Rlimit,
  type RlimitName,
  type SandboxSpec,
} from "#core/sandbox.ts";
import type { Composed } from "#images/layers/compose.ts";

/** What a sandbox runs on, and the artifacts that it is made of. */
export type Environment = Composed & Pick<SandboxSpec["origin"], "artifacts">;

/** A spec without the id, which placement gives. */
export type Plan = Omit<SandboxSpec, "id" | "hostname"> & { readonly hostname: string | undefined };

/** Debian's, for images that set none. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Fills in what a request leaves unsaid: first from the environment's parts, then from the defaults. */
export function plan(
  request: CreateSandbox,
  environment: Environment,
  context: { readonly project: string; readonly backend: BackendKind },
): Plan {
  const { config, layers } = environment;
  const backend = request.backend ?? (config.computer === undefined ? context.backend : "vm");
  const computer = computerOf(request, backend, config);
  const artifacts = environment.artifacts === undefined ? {} : { artifacts: environment.artifacts };
  return {
    project: context.project,
    backend,
    layers,
    config,
    hostname: request.hostname,
    env: { PATH: DEFAULT_PATH, ...config.env, ...request.env },
    user: request.user ?? config.user ?? "root",
    workdir: request.workdir ?? config.workdir ?? "/",
    resources: { ...DEFAULT_RESOURCES, ...request.resources },
    rlimits: rlimitsOf(request),
    lifetime: {
      idleTimeoutMs: request.idleTimeoutMs ?? undefined,
      maxLifetimeMs: request.maxLifetimeMs ?? undefined,
    },
    labels: request.labels ?? {},
    ...(computer === undefined ? {} : { computer }),
    origin: { base: request.base, workspace: request.workspace, toolkits: request.toolkits ?? [], ...artifacts },
  };
}

/** The spec under an id; a sandbox is called by its id unless it was given a name. */
export function named(unnamed: Plan, id: SandboxId): SandboxSpec {
  return { ...unnamed, id, hostname: unnamed.hostname ?? id };
}

/** What the system of a full virtual machine without the agent decides. */
const OTHERS_DECISIONS = ["env", "user", "workdir", "hostname", "rlimits"] as const;

/** What the image says, and the request over it. Refuses by name what a full virtual machine takes no notice of. */
function computerOf(
  request: CreateSandbox,
  backend: BackendKind,
  { computer }: ImageConfig,
): ComputerShape | undefined {
  const isImage = computer !== undefined;
  if (isImage !== (backend === "vm")) {
    const what = isImage ? `a vm-image does not run as ${backend}` : `${JSON.stringify(request.base)} is no vm-image`;
    throw new SandboxError("InvalidArgument", what, {
      hint: "a vm-image runs with the backend vm, which is its default",
    });
  }
  if (!isImage) {
    if (request.computer === undefined) return undefined;
    throw new SandboxError("InvalidArgument", `computer is for full VMs, and this is a ${backend}`, {
      hint: "leave it out",
    });
  }
  const foreign = computer.agent === true ? (["hostname", "rlimits"] as const) : OTHERS_DECISIONS;
  for (const name of foreign) {
    if (request[name] === undefined) continue;
    throw new SandboxError("FailedPrecondition", `${name} is not for a full VM: its own system decides`, {
      hint: "leave it out",
      details: { field: name },
    });
  }
  return { ...computer, ...request.computer };
}

function rlimitsOf(request: CreateSandbox): Readonly<Partial<Record<RlimitName, Rlimit>>> {
  for (const [name, limit] of Object.entries(request.rlimits ?? {})) {
    if (limit.soft > limit.hard) {
      throw new SandboxError("InvalidArgument", `rlimits.${name}: soft ${limit.soft} is above hard ${limit.hard}`);
    }
  }
  return request.rlimits ?? {};
}
