import { type Static, Type } from "typebox";
import { STATES } from "#core/lifecycle.ts";
import { ACCELERATORS, BACKEND_KINDS, RLIMIT_NAMES } from "#core/sandbox.ts";
import { ComputerRequest, ComputerShapeView } from "./computers.ts";
import {
  closed,
  DurationMs,
  described,
  Environment,
  LabelFilter,
  Labels,
  oneOf,
  PathText,
  UserName,
} from "./values.ts";

/** Bounds that no node exceeds: beyond them a number is a mistake of units. */
const Cpus = Type.Number({ minimum: 0.01, maximum: 1024 });
const MemoryMiB = Type.Integer({ minimum: 1, maximum: 16 * 1024 * 1024 });
const SwapMiB = Type.Integer({ minimum: 0, maximum: 16 * 1024 * 1024 });
const Pids = Type.Integer({ minimum: 1, maximum: 4_194_304 });
const DiskMiB = Type.Integer({ minimum: 1, maximum: 1024 * 1024 * 1024 });

const LimitValue = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const RlimitPair = closed({ soft: LimitValue, hard: LimitValue });
const Rlimits = closed(
  Object.fromEntries(RLIMIT_NAMES.map((name) => [name, Type.Optional(RlimitPair)])) as Record<
    (typeof RLIMIT_NAMES)[number],
    ReturnType<typeof Type.Optional<typeof RlimitPair>>
  >,
);

/** A reference to an artifact: `name` or `name:tag`. */
const Reference = Type.String({ minLength: 1, maxLength: 255 });
const Timeout = Type.Union([DurationMs, Type.Null()]);

/** What to make. Whatever is absent takes a default, and the reply shows what is in force. */
export const CreateSandbox = closed({
  backend: Type.Optional(oneOf(BACKEND_KINDS)),
  base: Reference,
  workspace: Type.Optional(Reference),
  toolkits: Type.Optional(Type.Array(Reference, { maxItems: 64 })),
  resources: Type.Optional(
    closed({
      cpus: Type.Optional(described(Cpus, "Processor time as a multiple of one core.")),
      memoryMiB: Type.Optional(MemoryMiB),
      swapMiB: Type.Optional(described(SwapMiB, "On top of the memory.")),
      pids: Type.Optional(described(Pids, "Processes and threads.")),
      diskMiB: Type.Optional(described(DiskMiB, "What the sandbox may write.")),
    }),
  ),
  env: Type.Optional(Environment),
  user: Type.Optional(UserName),
  workdir: Type.Optional(PathText),
  hostname: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$" })),
  rlimits: Type.Optional(Rlimits),
  computer: Type.Optional(described(ComputerRequest, "Of a full VM.")),
  idleTimeoutMs: Type.Optional(described(Timeout, "Removed after so long without use; null: never.")),
  maxLifetimeMs: Type.Optional(described(Timeout, "Removed so long after creation; null: never.")),
  labels: Type.Optional(Labels),
});
export type CreateSandbox = Static<typeof CreateSandbox>;

/** New time limits: absent leaves one as it is, null lifts it. */
export const SandboxPatch = closed({
  idleTimeoutMs: Type.Optional(Timeout),
  maxLifetimeMs: Type.Optional(Timeout),
});
export type SandboxPatch = Static<typeof SandboxPatch>;

/** A sandbox as its node knows it. */
export const SandboxView = closed({
  id: Type.String(),
  edge: Type.String({ description: "The node that owns it." }),
  project: Type.String(),
  backend: oneOf(BACKEND_KINDS),
  state: oneOf(STATES),
  generation: Type.Integer({ description: "Rises with every change of state." }),
  reason: Type.Optional(Type.String({ description: "Why it failed or is on its way out." })),
  createdAtMs: Type.Number(),
  readyAtMs: Type.Optional(Type.Number()),
  lastActivityAtMs: Type.Number(),
  runningCommands: Type.Integer(),
  accelerator: Type.Optional(
    described(oneOf(ACCELERATORS), "What runs the processors of its machine: tcg is software. Containers have none."),
  ),
  parent: Type.Optional(Type.String({ description: "The sandbox that it was forked from, which may be gone." })),
  base: Type.String(),
  workspace: Type.Optional(Type.String()),
  toolkits: Type.Array(Type.String()),
  artifacts: Type.Optional(
    Type.Array(closed({ reference: Type.String(), digest: Type.String() }), {
      description: "What those names meant when it was made: it keeps these, wherever the tags move.",
    }),
  ),
  resources: closed({
    cpus: Cpus,
    memoryMiB: MemoryMiB,
    swapMiB: SwapMiB,
    pids: Pids,
    diskMiB: Type.Optional(DiskMiB),
  }),
  env: Environment,
  user: Type.String(),
  workdir: Type.String(),
  hostname: Type.String(),
  rlimits: Rlimits,
  computer: Type.Optional(ComputerShapeView),
  idleTimeoutMs: Type.Optional(Type.Number()),
  maxLifetimeMs: Type.Optional(Type.Number()),
  labels: Labels,
});
export type SandboxView = Static<typeof SandboxView>;

/** One page; `cursor` is there when more may follow. `unreachable` names nodes that could not be asked. */
export const SandboxList = closed({
  sandboxes: Type.Array(SandboxView),
  cursor: Type.Optional(Type.String()),
  unreachable: Type.Optional(Type.Array(Type.String())),
});
export type SandboxList = Static<typeof SandboxList>;

/** Which sandboxes to list: those that carry every given label. */
export const SandboxQuery = closed({
  label: Type.Optional(LabelFilter),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
  cursor: Type.Optional(Type.String({ maxLength: 128 })),
});
