import type { CreateSandbox } from "#api/index.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import { type EdgeId, edgeOf, newSandboxId } from "#core/ids.ts";
import type { BackendKind, LayerDigest, SandboxInfo, SandboxSpec } from "#core/sandbox.ts";
import type { Catalogue } from "#images/catalogue.ts";
import { compose } from "#images/layers/compose.ts";
import { formatReference, foundBy } from "#images/reference.ts";
import { type IdempotencyKeys, type KeyEntry, requestHash, stateKey } from "./idempotency.ts";
import { type Demand, rank } from "./placement/placement.ts";
import type { Random } from "./placement/random.ts";
import { type Environment, named, type Plan, plan } from "./spec.ts";
import type { Watcher } from "./watcher/watcher.ts";

/** What a create needs. */
export interface CreatorOptions {
  readonly catalogue: Catalogue;
  readonly watcher: Watcher;
  readonly keys: IdempotencyKeys;
  readonly random: Random;
  /** For requests that name none. */
  readonly backend: BackendKind;
}

/** Someone's wish for a sandbox. */
export interface Wish {
  readonly project: string;
  readonly request: CreateSandbox;
  readonly idempotencyKey: string | undefined;
  readonly signal: AbortSignal;
}

/** What creates or sandboxes need. */
export interface InUse {
  readonly layers: readonly LayerDigest[];
  /** Digests. */
  readonly artifacts: readonly string[];
}

//   request ─► layers ─► spec ─► nodes in order ─► id of that node ─► node.create ─► ready
//                                     ▲                                  │ NodeFull
//                                     └──────────────────────────────────┘
//
// With a key, the spec is written down under the key before the node hears of it: a repeat joins the same create, on this
// apiserver or another, and the node makes the sandbox once because its id is the same.

/** Turns wishes into sandboxes. */
export class Creator {
  readonly #options: CreatorOptions;
  readonly #underWay = new Set<Plan>();
  readonly #lookups = new Set<Promise<Environment>>();

  constructor(options: CreatorOptions) {
    this.#options = options;
  }

  /** Resolves when the sandbox is ready. What rejects leaves none, or one that a repeat with the same key finds. */
  async create(wish: Wish): Promise<SandboxInfo> {
    const { idempotencyKey, project, request } = wish;
    if (idempotencyKey === undefined) return this.#planned(wish, (unnamed) => this.#once(wish, unnamed));
    const key = stateKey(project, idempotencyKey);
    const hash = requestHash(request);
    const known = await this.#options.keys.find(key, hash);
    if (known !== undefined && known.record.spec === undefined) return this.#made(known, wish.signal);
    return this.#planned(wish, (unnamed) => this.#underKey(wish, unnamed, { key, hash, known }));
  }

  /** Of creates under way: no sandbox names these yet, and no collection may take them. Waits for those that look up names now. */
  async underWay(): Promise<InUse> {
    await Promise.allSettled(this.#lookups);
    const plans = [...this.#underWay];
    const artifacts = plans.flatMap(({ origin }) => origin.artifacts ?? []).map(({ digest }) => digest);
    return { layers: plans.flatMap(({ layers }) => layers), artifacts };
  }

  async #planned<T>(wish: Wish, action: (unnamed: Plan) => Promise<T>): Promise<T> {
    const lookup = this.#environment(wish);
    this.#lookups.add(lookup);
    const environment = await lookup.finally(() => this.#lookups.delete(lookup));
    const unnamed = plan(wish.request, environment, { project: wish.project, backend: this.#options.backend });
    this.#underWay.add(unnamed);
    try {
      return await action(unnamed);
    } finally {
      this.#underWay.delete(unnamed);
    }
  }

  async #environment({ project, request }: Wish): Promise<Environment> {
    const resolve = (reference: string) => this.#options.catalogue.resolve(project, reference);
    const [base, workspace, ...toolkits] = await Promise.all([
      resolve(request.base),
      request.workspace === undefined ? undefined : resolve(request.workspace),
      ...(request.toolkits ?? []).map(resolve),
    ]);
    const parts = [base, ...(workspace === undefined ? [] : [workspace]), ...toolkits];
    const artifacts = parts.map((part) => ({ reference: formatReference(foundBy(part)), digest: part.digest }));
    return { ...compose({ base, workspace, toolkits }), artifacts };
  }

  async #once(wish: Wish, unnamed: Plan): Promise<SandboxInfo> {
    let refusal: SandboxError | undefined;
    for (const edge of this.#ranked(unnamed)) {
      const spec = named(unnamed, newSandboxId(edge));
      const info = await this.#tryOn(edge, spec, wish.signal);
      if (info instanceof SandboxError) {
        refusal = info;
        continue;
      }
      if (!wish.signal.aborted) return info;
      // The caller left while the answer was on its way: nobody knows the id, so nobody would ever remove it.
      await this.#options.watcher.node(edge).destroy(spec.id, AbortSignal.timeout(30_000));
      wish.signal.throwIfAborted();
    }
    throw noRoom(refusal);
  }

  async #underKey(
    wish: Wish,
    unnamed: Plan,
    found: { readonly key: string; readonly hash: string; readonly known: KeyEntry | undefined },
  ): Promise<SandboxInfo> {
    const { key, hash } = found;
    const edges = this.#ranked(unnamed)[Symbol.iterator]();
    let refusal: SandboxError | undefined;
    for (let { known } = found; ; known = await this.#options.keys.find(key, hash)) {
      const mine = known ?? (await this.#claimNext(edges, unnamed, { key, hash, over: undefined, refusal }));
      if (mine === undefined) continue;
      if (mine.record.spec === undefined) return this.#made(mine, wish.signal);
      const info = await this.#attempt(mine, mine.record.spec, key, wish.signal);
      if (!(info instanceof SandboxError)) return info;
      refusal = info;
      await this.#claimNext(edges, unnamed, { key, hash, over: mine, refusal });
    }
  }

  /** Claims the next node for the key; undefined when another call was faster. Throws when no node is left to try. */
  async #claimNext(
    edges: Iterator<EdgeId>,
    unnamed: Plan,
    claim: {
      readonly key: string;
      readonly hash: string;
      readonly over: KeyEntry | undefined;
      /** Of the node asked before. */
      readonly refusal: SandboxError | undefined;
    },
  ): Promise<KeyEntry | undefined> {
    const next = edges.next();
    if (next.done === true) {
      if (claim.over !== undefined) await this.#options.keys.release(claim.key, claim.over);
      throw noRoom(claim.refusal);
    }
    return this.#options.keys.claim(claim.key, claim.hash, named(unnamed, newSandboxId(next.value)), claim.over);
  }

  async #attempt(
    entry: KeyEntry,
    spec: SandboxSpec,
    key: string,
    signal: AbortSignal,
  ): Promise<SandboxInfo | SandboxError> {
    try {
      const info = await this.#tryOn(edgeOf(spec.id), spec, signal);
      if (!(info instanceof SandboxError)) this.#settleLater(key, entry);
      return info;
    } catch (error) {
      // A refusal stands; after anything else the next try under the key goes on where this one stopped.
      const { kind, retry } = asSandboxError(error);
      if (retry === "never" && kind !== "Cancelled") await this.#options.keys.release(key, entry);
      throw error;
    }
  }

  /** After the answer, which need not wait: as long as the create counts as under way, a repeat joins it and finds it done. */
  #settleLater(key: string, entry: KeyEntry): void {
    setImmediate(() => void this.#options.keys.settle(key, entry).catch(() => undefined));
  }

  /** The refusal itself when the node has no room. */
  async #tryOn(edge: EdgeId, spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo | SandboxError> {
    const { watcher } = this.#options;
    signal.throwIfAborted();
    watcher.placed(edge, demandOf(spec));
    try {
      return await watcher.node(edge).create(spec, signal);
    } catch (error) {
      if (error instanceof SandboxError && error.kind === "NodeFull") return error;
      throw error;
    }
  }

  #ranked(unnamed: Plan): readonly EdgeId[] {
    return rank(demandOf(unnamed), this.#options.watcher.candidates(), this.#options.random);
  }

  async #made({ record }: KeyEntry, signal: AbortSignal): Promise<SandboxInfo> {
    try {
      return await this.#options.watcher.node(edgeOf(record.id)).inspect(record.id, signal);
    } catch (error) {
      if (!(error instanceof SandboxError) || error.kind !== "NotFound") throw error;
      throw new SandboxError("FailedPrecondition", "the sandbox that was made under this idempotency key is gone", {
        hint: "use a new key to make another one",
        details: { id: record.id },
      });
    }
  }
}

/** What placement asks nodes for. */
export function demandOf({
  backend,
  resources: { cpus, memoryMiB },
}: Pick<SandboxSpec, "backend" | "resources">): Demand {
  return { backend, cpus, memoryMiB };
}

function noRoom(refusal: SandboxError | undefined): SandboxError {
  const why = refusal === undefined ? "" : `; the last one asked says: ${refusal.message}`;
  return new SandboxError("NodeFull", `no node has room for the sandbox now${why}`, {
    hint: "remove sandboxes, ask for less, or try again later",
    ...(refusal === undefined ? {} : { cause: refusal, details: refusal.details }),
  });
}
