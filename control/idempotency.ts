import { createHash } from "node:crypto";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { StateStore } from "./state/store.ts";

/** How long a key stands for its first request: longer than any client retries. */
const KEPT_MS = 3_600_000;
const PREFIX = "idempotency/";
const SWEEP_PAGE = 500;

/** What is known under a key: a create under way, with all a repeat needs to join it, or one that succeeded. */
export interface KeyRecord {
  readonly requestHash: string;
  readonly id: SandboxId;
  /** Present while the create is under way. */
  readonly spec?: SandboxSpec;
  /** Of a call that made something else than a sandbox: what it answered, as JSON. */
  readonly reply?: string;
  readonly expiresAtMs: number;
}

/** A record with the revision it was read at. */
export interface KeyEntry {
  readonly record: KeyRecord;
  readonly revision: number;
}

/** Remembers creates by the key of the caller, so that a repeat finds the first one's sandbox, on any apiserver. */
export class IdempotencyKeys {
  readonly #state: StateStore;
  readonly #clock: Clock;

  constructor(state: StateStore, clock: Clock) {
    this.#state = state;
    this.#clock = clock;
  }

  /** What is known under the key; undefined when it is new or was forgotten. Throws `InvalidArgument` for another request. */
  async find(key: string, requestHash: string): Promise<KeyEntry | undefined> {
    const entry = await this.#state.get(key);
    if (entry === undefined) return undefined;
    const record = recordOf(entry.value);
    if (record.expiresAtMs <= this.#clock.now()) {
      await this.#state.delete(key, entry.revision);
      return undefined;
    }
    if (record.requestHash !== requestHash) {
      throw new SandboxError("InvalidArgument", "the idempotency key was used for another request", {
        hint: "use a new key for a new request",
      });
    }
    return { record, revision: entry.revision };
  }

  /** Writes down what is about to be made. Undefined when another call was faster: look again. */
  async claim(
    key: string,
    requestHash: string,
    spec: SandboxSpec,
    over: KeyEntry | undefined,
  ): Promise<KeyEntry | undefined> {
    const record: KeyRecord = { requestHash, id: spec.id, spec, expiresAtMs: this.#clock.now() + KEPT_MS };
    const revision = await this.#state.put(key, JSON.stringify(record), over?.revision ?? "absent");
    return revision === undefined ? undefined : { record, revision };
  }

  /** The sandbox exists: keeps its id only. No effect when another call did it already. */
  async settle(key: string, { record, revision }: KeyEntry): Promise<void> {
    const { spec: _done, ...rest } = record;
    await this.#state.put(key, JSON.stringify(rest), revision);
  }

  /** Keeps the answer of a call that succeeded. No effect when another call has the key. */
  async keep(key: string, requestHash: string, id: SandboxId, reply: unknown): Promise<void> {
    const record: KeyRecord = {
      requestHash,
      id,
      reply: JSON.stringify(reply),
      expiresAtMs: this.#clock.now() + KEPT_MS,
    };
    await this.#state.put(key, JSON.stringify(record), "absent");
  }

  /** Nothing was made: the key is free again, unless another call has gone on with it. */
  async release(key: string, { revision }: KeyEntry): Promise<void> {
    await this.#state.delete(key, revision);
  }

  /** Deletes records that have expired, in small steps. */
  async sweep(): Promise<void> {
    for (let after: string | undefined; ; ) {
      const page = await this.#state.list(PREFIX, { limit: SWEEP_PAGE, ...(after === undefined ? {} : { after }) });
      for (const { key, value, revision } of page) {
        if (recordOf(value).expiresAtMs <= this.#clock.now()) await this.#state.delete(key, revision);
      }
      after = page.at(-1)?.key;
      if (page.length < SWEEP_PAGE) return;
    }
  }
}

/** Where a key of a project is kept. Keys of two projects never meet, whatever bytes they have. */
export function stateKey(project: string, key: string): string {
  return `${PREFIX}${project}/${createHash("sha256").update(key).digest("hex")}`;
}

/** Tells whether two requests are the same; the order of keys in the JSON does not matter. */
export function requestHash(request: unknown): string {
  return createHash("sha256").update(JSON.stringify(request, sortedKeys)).digest("hex");
}

function sortedKeys(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** JSON drops what is undefined; a spec that went through it must equal the one it was, for nodes compare them. */
function recordOf(json: string): KeyRecord {
  const record = JSON.parse(json) as KeyRecord;
  return record.spec === undefined ? record : { ...record, spec: whole(record.spec) };
}

function whole(spec: SandboxSpec): SandboxSpec {
  return {
    ...spec,
    config: { env: spec.config.env, user: spec.config.user, workdir: spec.config.workdir },
    resources: { ...spec.resources, diskMiB: spec.resources.diskMiB },
    lifetime: { idleTimeoutMs: spec.lifetime.idleTimeoutMs, maxLifetimeMs: spec.lifetime.maxLifetimeMs },
    origin: { ...spec.origin, workspace: spec.origin.workspace },
  };
}
