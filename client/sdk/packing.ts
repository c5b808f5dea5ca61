import { randomUUID } from "node:crypto";
import type { ForkRequest, ForkView, PackRequest, PackView, SandboxView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { DsecError, errorFromBody, outcomeUnknown } from "./errors.ts";
import type { Created } from "./many.ts";
import { sandboxPath } from "./paths.ts";
import type { Sandbox } from "./sandbox.ts";

/** A large sandbox takes a while to read and to hash. */
const PACK_TIMEOUT_MS = 600_000;

/** What to make of a sandbox's changes. */
export interface PackOptions extends CallOptions {
  /** Of the snapshot: `name` or `name:tag`. */
  readonly name: string;
  /** Glob patterns of paths to leave out: `*` within a name, `**` over any; one without `/` holds wherever it lies. */
  readonly exclude?: readonly string[];
  /** What is scrubbed unless it is named here. */
  readonly keep?: PackRequest["keep"];
  /** How what is made of the snapshot runs, over what its artifacts say. */
  readonly config?: PackRequest["config"];
  /** Of the snapshot, which has none of its sandbox's. */
  readonly labels?: Readonly<Record<string, string>>;
  /** False: its processes are not held still for the moment. */
  readonly consistent?: boolean;
  /** The same key makes one snapshot, however often it is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** Packs the sandbox at `path`. */
export function packDiff(caller: Caller, path: string, options: PackOptions): Promise<PackView> {
  const { name, exclude, keep, config, labels, consistent, idempotencyKey = randomUUID() } = options;
  const { signal, timeoutMs = PACK_TIMEOUT_MS } = options;
  const json: PackRequest = {
    name,
    ...(exclude === undefined ? {} : { exclude: [...exclude] }),
    ...(keep === undefined ? {} : { keep }),
    ...(config === undefined ? {} : { config }),
    ...(labels === undefined ? {} : { labels: { ...labels } }),
    ...(consistent === undefined ? {} : { consistent }),
  };
  const headers = { "idempotency-key": idempotencyKey };
  return caller.json({ signal, timeoutMs, method: "POST", path: `${path}/pack`, json, headers, repeatable: true });
}

/** Many children wait for their turn. */
const FORK_TIMEOUT_MS = 300_000;
/** Taking back a fork that was given up may hold its caller for so long at most. */
const UNDO_TIMEOUT_MS = 15_000;

/** How to fork a sandbox. */
export interface ForkOptions extends CallOptions {
  /** 1 to 256. */
  readonly count: number;
  /** Beside those of the sandbox. */
  readonly labels?: Readonly<Record<string, string>>;
  /**
   * Where: `any`, the sandbox's node as long as it has room and then others; `same`, its node alone; `other`, none on its node. `any` unless
   * given. On other nodes they begin with a snapshot of the same instant.
   */
  readonly nodes?: ForkRequest["nodes"];
  /** Saves each as it is at this instant, memory and all, and lets none run before it is asked for something: a snapshot, on the sandbox's node. Of machines. */
  readonly paused?: boolean;
  /** False: they begin with its files alone, also where what runs could come along. */
  readonly memory?: boolean;
  /** The same key gives the same sandboxes, however often it is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** What came of a fork. */
export interface Forks {
  /** How long the processes of the sandbox were held still. */
  readonly frozenMs: number;
  /** In the order of their indexes; one that failed concerns no other. */
  readonly forks: readonly Created[];
}

/** Forks the sandbox at `path`. One that is given up leaves no sandbox whose id nobody knows. */
export async function forkSandbox(
  caller: Caller,
  path: string,
  options: ForkOptions,
  handle: (view: SandboxView) => Sandbox,
): Promise<Forks> {
  const { count, labels, nodes, paused, memory, idempotencyKey, signal, timeoutMs = FORK_TIMEOUT_MS } = options;
  const request: ForkRequest = {
    count,
    ...(labels === undefined ? {} : { labels: { ...labels } }),
    ...(nodes === undefined ? {} : { nodes }),
    ...(paused === undefined ? {} : { paused }),
    ...(memory === undefined ? {} : { memory }),
  };
  const key = idempotencyKey ?? randomUUID();
  try {
    const { frozenMs, forks } = await post(caller, path, { request, key }, { signal, timeoutMs });
    const made = forks.map((fork): Created => {
      if ("error" in fork) return { index: fork.index, error: errorFromBody(fork) };
      return { index: fork.index, sandbox: handle(fork.sandbox) };
    });
    return { frozenMs, forks: made };
  } catch (error) {
    if (idempotencyKey === undefined && outcomeUnknown(error, signal)) await undo(caller, path, { request, key });
    throw error;
  }
}

interface Fork {
  readonly request: ForkRequest;
  readonly key: string;
}

function post(caller: Caller, path: string, { request, key }: Fork, options: CallOptions): Promise<ForkView> {
  const headers = { "idempotency-key": key };
  return caller.json({ ...options, method: "POST", path: `${path}/fork`, json: request, headers, repeatable: true });
}

/** The same key tells which sandboxes they were. When nobody answers there is nothing to do. */
async function undo(caller: Caller, path: string, fork: Fork): Promise<void> {
  try {
    const { forks } = await post(caller, path, fork, { timeoutMs: UNDO_TIMEOUT_MS });
    for (const made of forks) {
      if (!("sandbox" in made)) continue;
      const gone = { method: "DELETE", path: sandboxPath(made.sandbox.id), repeatable: true } as const;
      await caller.json({ ...gone, timeoutMs: UNDO_TIMEOUT_MS });
    }
  } catch (error) {
    if (!(error instanceof DsecError)) throw error;
  }
}
