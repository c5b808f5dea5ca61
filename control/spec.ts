import type { CreateSandbox } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { type BackendKind, DEFAULT_RESOURCES, type Rlimit, type RlimitName, type SandboxSpec } from "#core/sandbox.ts";
import type { Composed } from "#images/compose.ts";

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
  const artifacts = environment.artifacts === undefined ? {} : { artifacts: environment.artifacts };
  return {
    project: context.project,
    backend: request.backend ?? context.backend,
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
    origin: { base: request.base, workspace: request.workspace, toolkits: request.toolkits ?? [], ...artifacts },
  };
}

/** The spec under an id; a sandbox is called by its id unless it was given a name. */
export function named(unnamed: Plan, id: SandboxId): SandboxSpec {
  return { ...unnamed, id, hostname: unnamed.hostname ?? id };
}

function rlimitsOf(request: CreateSandbox): Readonly<Partial<Record<RlimitName, Rlimit>>> {
  for (const [name, limit] of Object.entries(request.rlimits ?? {})) {
    if (limit.soft > limit.hard) {
      throw new SandboxError("InvalidArgument", `rlimits.${name}: soft ${limit.soft} is above hard ${limit.hard}`);
    }
  }
  return request.rlimits ?? {};
}
