import { createHash } from "node:crypto";
import { asSandboxError, fromWire, SandboxError } from "#core/errors.ts";
import { type EdgeId, edgeOf, newSandboxId, type SandboxId, sandboxIdOf } from "#core/ids.ts";
import { canonical } from "#core/pack.ts";
import { childSpec, type Forked, type ForkNodes, type ForkSnapshot } from "#core/packing.ts";
import type { LayerDigest, SandboxInfo, SandboxSpec } from "#core/sandbox.ts";
import type { Reach } from "./access.ts";
import { demandOf } from "./create.ts";
import { rank } from "./placement/placement.ts";
import type { Random } from "./placement/random.ts";
import type { Watcher } from "./watcher/watcher.ts";

/** Someone's wish for forks. */
export interface ForkWish {
  readonly project: string;
  readonly parent: Reach;
  readonly count: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly nodes: ForkNodes;
  /** See `ForkHow`. */
  readonly paused: boolean;
  readonly memory: boolean;
  /** Under a key ids are the same for every repeat: the node then finds the child that it has. */
  readonly idempotencyKey: string | undefined;
  readonly signal: AbortSignal;
  /** Told each id before a node hears of it. */
  readonly named: (id: SandboxId) => void;
}

/** A fork that is ready, or why there is none. */
export type ForkOutcome = { readonly info: SandboxInfo } | { readonly error: unknown };

/** What came of the forks, in the order of their indexes. */
export interface ForksMade {
  readonly frozenMs: number;
  readonly outcomes: readonly ForkOutcome[];
}

/** Taking back what nobody waits for. */
const UNDO_MS = 30_000;

//   those that a repeat finds elsewhere ─► the parent's node, as many as it has room for ─► ready
//                                            │ NodeFull, and the layers of that instant in the store
//                                            └─► other nodes in the order of placement ─► node.create ─► ready

/** Makes forks: on the node of their parent while that has room, and on others of a snapshot of the same instant. */
export class Forks {
  readonly #watcher: Watcher;
  readonly #random: Random;

  constructor(watcher: Watcher, random: Random) {
    this.#watcher = watcher;
    this.#random = random;
  }

  /** Rejects when nothing could be begun with. What is wrong with one concerns no other. */
  async fork(wish: ForkWish): Promise<ForksMade> {
    const indexes = Array.from({ length: wish.count }, (_, index) => index);
    const outcomes = new Map<number, ForkOutcome>(await this.#madeElsewhere(wish, indexes));
    const left = indexes.filter((index) => !outcomes.has(index));
    if (left.length === 0) return { frozenMs: 0, outcomes: ordered(outcomes, indexes) };
    const { frozenMs, here, snapshot } = await this.#onItsNode(wish, left);
    for (const [index, outcome] of here) outcomes.set(index, outcome);
    const homeless = left.filter((index) => isHomeless(outcomes.get(index)));
    if (homeless.length > 0) {
      const { spec } = await wish.parent.node.inspect(wish.parent.id, wish.signal);
      await Promise.all(
        homeless.map(async (index) => {
          const refusal = outcomes.get(index);
          outcomes.set(index, await this.#elsewhere(wish, { index, spec, snapshot, refusal }));
        }),
      );
    }
    return { frozenMs, outcomes: ordered(outcomes, indexes) };
  }

  /** The children that go on the parent's node, and the snapshot for others when there is need of one. */
  async #onItsNode(wish: ForkWish, left: readonly number[]) {
    const { parent, labels, nodes, paused, memory, signal } = wish;
    const isAlone = this.#others(parent.id).length === 0;
    if (nodes === "other" && isAlone) throw this.#noOther(parent.id);
    const placed = nodes === "other" ? [] : left;
    const children = placed.map((index) => ({ id: childId(wish, edgeOf(parent.id), index), labels }));
    for (const { id } of children) wish.named(id);
    const wanted: ForkSnapshot = nodes === "other" ? "always" : nodes === "same" || isAlone ? "never" : "if-full";
    const forked = await parent.node.fork(parent.id, children, { snapshot: wanted, paused, memory }, signal);
    const here = await Promise.all(
      placed.map(async (index, at) => [index, await this.#outcomeHere(children[at]?.id, forked, at, signal)] as const),
    );
    return { frozenMs: forked.frozenMs, here, snapshot: forked.snapshot };
  }

  async #outcomeHere(
    id: SandboxId | undefined,
    { outcomes }: Forked,
    at: number,
    signal: AbortSignal,
  ): Promise<ForkOutcome> {
    const error = outcomes[at]?.error;
    if (error !== undefined || id === undefined) return { error: error && fromWire(error) };
    return await outcomeOf(signal, () => this.#watcher.node(edgeOf(id)).inspect(id, signal));
  }

  /** One child on the first other node that has room for it. */
  async #elsewhere(wish: ForkWish, child: Homeless): Promise<ForkOutcome> {
    const { snapshot, refusal } = child;
    if (snapshot === undefined) return refusal ?? { error: new Error("a node was asked for a snapshot and has none") };
    if ("error" in snapshot) return { error: fromWire(snapshot.error) };
    let full = refusal;
    for (const edge of this.#ranked(wish.parent.id, child.spec)) {
      const outcome = await this.#tryOn(edge, wish, { ...child, layers: snapshot.layers });
      if (!isHomeless(outcome)) return outcome;
      full = outcome;
    }
    if (full !== undefined) return full;
    const isAlone = this.#others(wish.parent.id).length === 0;
    return { error: isAlone ? this.#noOther(wish.parent.id) : noRoom() };
  }

  async #tryOn(edge: EdgeId, wish: ForkWish, { index, spec, layers }: Placed): Promise<ForkOutcome> {
    const { labels, idempotencyKey, signal } = wish;
    const id = childId(wish, edge, index);
    wish.named(id);
    this.#watcher.placed(edge, demandOf(spec));
    const node = this.#watcher.node(edge);
    return await outcomeOf(signal, () => node.create({ ...childSpec(spec, { id, labels }), layers }, signal), {
      // Nobody knows the id, so nobody would ever remove what may be there; under a key a repeat finds it.
      undo: () => (idempotencyKey === undefined ? node.destroy(id, AbortSignal.timeout(UNDO_MS)) : undefined),
    });
  }

  /** What an earlier try under the key made on other nodes than the parent's: those are joined, and no others made in their place. */
  async #madeElsewhere(
    wish: ForkWish,
    indexes: readonly number[],
  ): Promise<readonly (readonly [number, ForkOutcome])[]> {
    const { idempotencyKey, nodes } = wish;
    if (idempotencyKey === undefined || nodes === "same") return [];
    const others = this.#others(wish.parent.id);
    const looks = indexes.flatMap((index) => others.map((edge) => this.#lookOn(edge, wish, index)));
    return (await Promise.all(looks)).flatMap((found) => (found === undefined ? [] : [found]));
  }

  async #lookOn(edge: EdgeId, wish: ForkWish, index: number): Promise<readonly [number, ForkOutcome] | undefined> {
    const { parent, labels, signal } = wish;
    const id = childId(wish, edge, index);
    const node = this.#watcher.node(edge);
    const found = await outcomeOf(signal, () => node.inspect(id, signal));
    if ("error" in found) return undefined;
    const { spec } = found.info;
    return [
      index,
      await outcomeOf(signal, async () => {
        const isAsked =
          spec.parent === parent.id && canonical({ ...spec.labels, ...labels }) === canonical(spec.labels);
        if (!isAsked) throw new SandboxError("AlreadyExists", `sandbox ${id} exists, and is another one`);
        return await node.create(spec, signal);
      }),
    ];
  }

  /** Nodes that answer and take forks, but for the parent's. */
  #others(parent: SandboxId): readonly EdgeId[] {
    const candidates = this.#candidates(parent).filter(({ lost }) => !lost);
    return candidates.map(({ info }) => info.edge);
  }

  #candidates(parent: SandboxId) {
    return this.#watcher.forkCandidates().filter(({ info }) => info.edge !== edgeOf(parent));
  }

  #noOther(parent: SandboxId): SandboxError {
    if (this.#candidates(parent).length > 0) {
      return new SandboxError("Unavailable", "no other node that takes forks answers");
    }
    return new SandboxError("FailedPrecondition", "no other node is known that takes forks", {
      hint: "start the server with --fork-nodes, or leave the choice of nodes to it",
    });
  }

  #ranked(parent: SandboxId, spec: SandboxSpec): readonly EdgeId[] {
    try {
      return rank(demandOf(spec), this.#candidates(parent), this.#random);
    } catch (error) {
      // None of them is there, or could ever hold it: the refusal of the parent's node tells more.
      if (!(error instanceof SandboxError)) throw error;
      return [];
    }
  }
}

interface Homeless {
  readonly index: number;
  /** Of the parent. */
  readonly spec: SandboxSpec;
  readonly snapshot: Forked["snapshot"];
  /** Of the parent's node, if that was asked. */
  readonly refusal: ForkOutcome | undefined;
}

interface Placed extends Pick<Homeless, "index" | "spec"> {
  readonly layers: readonly LayerDigest[];
}

function childId({ project, parent, idempotencyKey }: ForkWish, edge: EdgeId, index: number): SandboxId {
  if (idempotencyKey === undefined) return newSandboxId(edge);
  const seed = JSON.stringify([project, parent.id, idempotencyKey, index]);
  return sandboxIdOf(edge, createHash("sha256").update(seed).digest());
}

function noRoom(): SandboxError {
  return new SandboxError("NodeFull", "no other node could hold the fork");
}

/** Not asked for yet, or refused for want of room. */
function isHomeless(outcome: ForkOutcome | undefined): boolean {
  if (outcome === undefined) return true;
  return "error" in outcome && asSandboxError(outcome.error).kind === "NodeFull";
}

/** Rejects when the caller has left. */
async function outcomeOf(
  signal: AbortSignal,
  make: () => Promise<SandboxInfo>,
  { undo }: { readonly undo?: () => Promise<void> | undefined } = {},
): Promise<ForkOutcome> {
  try {
    const info = await make();
    signal.throwIfAborted();
    return { info };
  } catch (error) {
    // A node that refuses for want of room has begun nothing.
    if (!isHomeless({ error })) await undo?.()?.catch(() => undefined);
    signal.throwIfAborted();
    return { error };
  }
}

function ordered(outcomes: ReadonlyMap<number, ForkOutcome>, indexes: readonly number[]): readonly ForkOutcome[] {
  return indexes.map((index) => outcomes.get(index) ?? { error: new Error(`fork ${index} was forgotten`) });
}
