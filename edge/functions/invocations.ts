import type { Clock } from "#core/clock.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import {
  bulkBytesOf,
  type FunctionCall,
  type FunctionResult,
  type Functions,
  type HeldResult,
} from "#core/functions.ts";
import { type EdgeId, type InvocationId, newInvocationId } from "#core/ids.ts";
import type { InvocationWait } from "#core/node.ts";

/** Whoever has not come for a result after so long has forgotten it. */
const KEPT_MS = 10 * 60_000;
/** Calls that run or whose results wait, and those of one project. */
const MOST = 8_000;
const MOST_OF_PROJECT = 1_000;
/** Of all results that wait. As much of what calls bring may wait for their ends, a quarter of it of one project. */
const MOST_BYTES = 256 * 1024 * 1024;

interface Invocation {
  readonly project: string;
  readonly result: Promise<FunctionResult>;
  readonly giveUp: AbortController;
  /** Of its result; undefined while it runs. */
  bytes: number | undefined;
}

/** Calls that nobody waits for now, and results that nobody has come for yet. In memory: a node that ends forgets them. */
export class Invocations implements Disposable {
  readonly #functions: Functions;
  readonly #clock: Clock;
  readonly #edge: EdgeId;
  /** Those that ended first come first. */
  readonly #kept = new Map<InvocationId, Invocation>();
  /** Of what calls brought that have not ended, by project. */
  readonly #brought = new Map<string, number>();

  constructor(functions: Functions, parts: { readonly clock: Clock; readonly edge: EdgeId }) {
    this.#functions = functions;
    this.#clock = parts.clock;
    this.#edge = parts.edge;
  }

  /** Throws `Overloaded` when too many run or wait, here or of the project, or too much of what they brought. */
  start(call: FunctionCall): InvocationId {
    const broughtBytes = bulkBytesOf(call);
    this.#admit(call.project, broughtBytes);
    this.#bring(call.project, broughtBytes);
    const id = newInvocationId(this.#edge);
    const giveUp = new AbortController();
    const result = this.#functions
      .invoke(call, giveUp.signal)
      .then((held) => {
        // From here on it is counted here.
        held[Symbol.dispose]();
        return held;
      })
      .finally(() => this.#bring(call.project, -broughtBytes));
    this.#kept.set(id, { project: call.project, result, giveUp, bytes: undefined });
    result.then(
      (value) => this.#ended(id, bulkBytesOf(value)),
      () => this.#ended(id, 0),
    );
    return id;
  }

  async wait(
    id: InvocationId,
    { project, waitMs }: InvocationWait,
    signal: AbortSignal,
  ): Promise<HeldResult | undefined> {
    const known = this.#kept.get(id);
    // Calls of others are as unknown as those that never were.
    if (known?.project !== project) {
      throw new SandboxError("NotFound", `no call ${id}`, { hint: "results are kept for ten minutes" });
    }
    const { promise, resolve } = Promise.withResolvers<undefined>();
    using _timer = this.#clock.after(waitMs, () => resolve(undefined));
    // The timer is gone with this scope.
    const result = await abortable(Promise.race([known.result, promise]), signal);
    // It stays here, and is counted here, whoever looks at it.
    return result && { ...result, [Symbol.dispose]: () => undefined };
  }

  drop(id: InvocationId, project: string): void {
    const known = this.#kept.get(id);
    if (known?.project !== project) return;
    known.giveUp.abort(new SandboxError("Cancelled", "the call was given up"));
    this.#kept.delete(id);
  }

  [Symbol.dispose](): void {
    for (const { giveUp } of this.#kept.values()) giveUp.abort(new SandboxError("Unavailable", "the node is closing"));
    this.#kept.clear();
  }

  #admit(project: string, broughtBytes: number): void {
    let own = 0;
    for (const kept of this.#kept.values()) own += kept.project === project ? 1 : 0;
    if (own >= MOST_OF_PROJECT)
      throw overloaded(`${own} calls of this project run or have results that nobody has taken`);
    if (this.#kept.size >= MOST) throw overloaded(`${MOST} calls run or have results that nobody has taken`);
    const brought = [...this.#brought.values()].reduce((sum, bytes) => sum + bytes, 0);
    const ownBrought = this.#brought.get(project) ?? 0;
    const isOver = (bytes: number, most: number) => bytes > 0 && bytes + broughtBytes > most;
    if (isOver(brought, MOST_BYTES) || isOver(ownBrought, MOST_BYTES / 4)) {
      throw overloaded(
        `calls with ${brought} bytes of input and files run or wait, ${ownBrought} of them of this project`,
      );
    }
  }

  #bring(project: string, bytes: number): void {
    const brought = (this.#brought.get(project) ?? 0) + bytes;
    if (brought > 0) this.#brought.set(project, brought);
    else this.#brought.delete(project);
  }

  #ended(id: InvocationId, bytes: number): void {
    const known = this.#kept.get(id);
    if (known === undefined) return;
    known.bytes = bytes;
    this.#kept.delete(id);
    this.#kept.set(id, known);
    this.#clock.after(KEPT_MS, () => this.#kept.delete(id));
    this.#makeRoom();
  }

  /** The oldest results go first, of the project whose results are the largest together: nobody's give way to those of who keeps more. */
  #makeRoom(): void {
    const held = new Map<string, number>();
    for (const { project, bytes = 0 } of this.#kept.values()) held.set(project, (held.get(project) ?? 0) + bytes);
    const [[largest, ofLargest] = ["", 0]] = [...held].sort(([, a], [, b]) => b - a);
    const all = [...held.values()].reduce((sum, bytes) => sum + bytes, 0);
    if (all <= MOST_BYTES || ofLargest === 0) return;
    const [oldest] = [...this.#kept].find(([, { project, bytes = 0 }]) => project === largest && bytes > 0) ?? [];
    if (oldest !== undefined) this.#kept.delete(oldest);
    this.#makeRoom();
  }
}

function overloaded(message: string): SandboxError {
  return new SandboxError("Overloaded", message, {
    hint: "drop calls whose results you have (DELETE), or try again later",
    details: { retryAfterMs: 10_000 },
  });
}
