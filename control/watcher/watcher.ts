import { AwakeTime, type Clock } from "#core/clock.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { EdgeId } from "#core/ids.ts";
import type { Node, NodeInfo } from "#core/node.ts";
import type { Log } from "../log.ts";
import type { Candidate, Demand, Load } from "../placement/placement.ts";

/** How the watcher looks at nodes; times in milliseconds. */
export interface WatcherOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Between the answer to one question and the next question. */
  readonly pollMs?: number;
  /** An answer that takes longer is none. */
  readonly answerMs?: number;
  /** Without an answer for so long a node counts as lost; time in which this process stood still is not held against it. */
  readonly lostAfterMs?: number;
}

/** What was last heard of a node. */
export interface NodeSighting {
  readonly info: NodeInfo;
  readonly ageMs: number;
  readonly lost: boolean;
  /** Why the last question got no answer. */
  readonly reason: string | undefined;
}

const POLL_MS = 500;
const ANSWER_MS = 2_000;
const LOST_AFTER_MS = 3_000;
const NO_LOAD: Load = { sandboxes: 0, cpus: 0, memoryMiB: 0 };

/** Knows the nodes of the unit, asks each how it is, and says how old every answer is. A cache: nodes own the facts. */
export class Watcher implements Disposable {
  readonly #options: Required<WatcherOptions>;
  readonly #awake: AwakeTime;
  readonly #nodes = new Map<EdgeId, Watched>();

  constructor(options: WatcherOptions) {
    this.#options = { pollMs: POLL_MS, answerMs: ANSWER_MS, lostAfterMs: LOST_AFTER_MS, ...options };
    this.#awake = new AwakeTime(options.clock);
  }

  /**
   * Adds a node, or replaces the connection to it. Resolves after the first answer, or the first failure to get one. `takes`: what is placed
   * there; sandboxes that it has can be reached in any case.
   */
  async add(edge: EdgeId, node: Node, takes: "all" | "forks" = "all"): Promise<void> {
    this.remove(edge);
    const watched = new Watched(edge, node, { ...this.#options, awake: this.#awake, takes });
    this.#nodes.set(edge, watched);
    await watched.poll();
  }

  /** Forgets a node. No effect when it is not known. */
  remove(edge: EdgeId): void {
    this.#nodes.get(edge)?.[Symbol.dispose]();
    this.#nodes.delete(edge);
  }

  /** The connection to a node, lost or not. Throws `NotFound`: nothing can exist on a node nobody knows. */
  node(edge: EdgeId): Node {
    const watched = this.#nodes.get(edge);
    if (watched === undefined) throw new SandboxError("NotFound", `no node ${edge}`);
    return watched.node;
  }

  /** Every known node with its connection, by edge. */
  nodes(): readonly (readonly [EdgeId, Node])[] {
    return [...this.#nodes].map(([edge, { node }]) => [edge, node] as const).sort(([a], [b]) => (a < b ? -1 : 1));
  }

  /** What is known of every node that has answered at least once, by edge. */
  sightings(): readonly NodeSighting[] {
    return [...this.#nodes.values()]
      .flatMap((watched) => watched.sighting() ?? [])
      .sort((a, b) => (a.info.edge < b.info.edge ? -1 : 1));
  }

  /** What placement ranks. */
  candidates(): readonly Candidate[] {
    return [...this.#nodes.values()].flatMap((watched) => (watched.takes === "all" ? (watched.candidate() ?? []) : []));
  }

  /** What placement of forks ranks. */
  forkCandidates(): readonly Candidate[] {
    return [...this.#nodes.values()].flatMap((watched) => watched.candidate() ?? []);
  }

  /** Counts a placement against the node until its next answer, which includes it. */
  placed(edge: EdgeId, demand: Demand): void {
    this.#nodes.get(edge)?.placed(demand);
  }

  [Symbol.dispose](): void {
    for (const edge of [...this.#nodes.keys()]) this.remove(edge);
    this.#awake[Symbol.dispose]();
  }
}

interface WatchedOptions extends Required<WatcherOptions> {
  readonly awake: AwakeTime;
  readonly takes: "all" | "forks";
}

class Watched implements Disposable {
  readonly edge: EdgeId;
  readonly node: Node;
  readonly takes: "all" | "forks";
  readonly #options: WatchedOptions;
  readonly #closed = new AbortController();
  #timer: Disposable | undefined;
  #info: NodeInfo | undefined;
  #answeredAtMs: number;
  /** In the time of this process. */
  #answeredAwakeMs: number;
  #reason: string | undefined;
  #wasLost = false;
  #recent = NO_LOAD;

  constructor(edge: EdgeId, node: Node, options: WatchedOptions) {
    this.edge = edge;
    this.node = node;
    this.takes = options.takes;
    this.#options = options;
    this.#answeredAtMs = options.clock.now();
    this.#answeredAwakeMs = options.awake.now();
  }

  async poll(): Promise<void> {
    // Placements made while the question is under way may be missing in the answer: they go on counting.
    const before = this.#recent;
    try {
      this.#heard(await this.#ask(), before);
    } catch (error) {
      this.#unheard(error);
    }
    if (this.#closed.signal.aborted) return;
    this.#timer = this.#options.clock.after(this.#options.pollMs, () => void this.poll());
  }

  sighting(): NodeSighting | undefined {
    if (this.#info === undefined) return undefined;
    const ageMs = Math.max(0, this.#options.clock.now() - this.#answeredAtMs);
    return { info: this.#info, ageMs, lost: this.#isLost(), reason: this.#reason };
  }

  candidate(): Candidate | undefined {
    const sighting = this.sighting();
    return sighting === undefined ? undefined : { info: sighting.info, lost: sighting.lost, recent: this.#recent };
  }

  placed(demand: Demand): void {
    const { sandboxes, cpus, memoryMiB } = this.#recent;
    this.#recent = { sandboxes: sandboxes + 1, cpus: cpus + demand.cpus, memoryMiB: memoryMiB + demand.memoryMiB };
  }

  [Symbol.dispose](): void {
    this.#closed.abort();
    this.#timer?.[Symbol.dispose]();
  }

  async #ask(): Promise<NodeInfo> {
    const late = new AbortController();
    const reason = new SandboxError("DeadlineExceeded", `no answer within ${this.#options.answerMs} ms`);
    const { promise, reject } = Promise.withResolvers<never>();
    using _timer = this.#options.clock.after(this.#options.answerMs, () => {
      late.abort(reason);
      reject(reason);
    });
    // A node that ignores its signal must not stop the watch of it.
    return await Promise.race([this.node.info(AbortSignal.any([late.signal, this.#closed.signal])), promise]);
  }

  #heard(info: NodeInfo, before: Load): void {
    if (info.edge !== this.edge) {
      throw new SandboxError("FailedPrecondition", `the node at the place of ${this.edge} says it is ${info.edge}`);
    }
    this.#info = info;
    this.#answeredAtMs = this.#options.clock.now();
    this.#answeredAwakeMs = this.#options.awake.now();
    this.#reason = undefined;
    this.#recent = {
      sandboxes: this.#recent.sandboxes - before.sandboxes,
      cpus: this.#recent.cpus - before.cpus,
      memoryMiB: this.#recent.memoryMiB - before.memoryMiB,
    };
    if (this.#wasLost) this.#options.log.info({ edge: this.edge }, "the node is back");
    this.#wasLost = false;
  }

  #unheard(error: unknown): void {
    if (this.#closed.signal.aborted) return;
    this.#reason = asSandboxError(error).message;
    const lost = this.#isLost();
    if (lost && !this.#wasLost) this.#options.log.warn({ edge: this.edge, err: error }, "the node is lost");
    this.#wasLost = lost;
  }

  #isLost(): boolean {
    return this.#options.awake.now() - this.#answeredAwakeMs >= this.#options.lostAfterMs;
  }
}
