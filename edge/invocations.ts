import { separate } from "#core/bulk.ts";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { FunctionCall, FunctionResult, Functions } from "#core/functions.ts";
import { type EdgeId, type InvocationId, newInvocationId } from "#core/ids.ts";
import type { InvocationWait } from "#core/node.ts";
import { abortable } from "#edge/abort.ts";

/** Whoever has not come for a result after so long has forgotten it. */
const KEPT_MS = 10 * 60_000;
/** Calls that run or whose results wait. */
const MOST = 1_000;
/** Of all results that wait; the oldest go first. As much of what calls bring may wait for their ends. */
const MOST_BYTES = 256 * 1024 * 1024;

interface Invocation {
  readonly project: string;
  readonly result: Promise<FunctionResult>;
  readonly giveUp: AbortController;
  /** Undefined while it runs. */
  bytes: number | undefined;
}

/** Calls that nobody waits for now, and results that nobody has come for yet. In memory: a node that ends forgets them. */
export class Invocations implements Disposable {
  readonly #functions: Functions;
  readonly #clock: Clock;
  readonly #edge: EdgeId;
  /** The oldest first. */
  readonly #kept = new Map<InvocationId, Invocation>();
  /** Of what calls that have not ended brought. */
  #broughtBytes = 0;

  constructor(functions: Functions, parts: { readonly clock: Clock; readonly edge: EdgeId }) {
    this.#functions = functions;
    this.#clock = parts.clock;
    this.#edge = parts.edge;
  }

  /** Throws `Overloaded` when too many run or wait, or too much of what they brought. */
  start(call: FunctionCall): InvocationId {
    if (this.#kept.size >= MOST) throw overloaded(`${MOST} calls run or have results that nobody has taken`);
    const broughtBytes = bytesOf(call);
    if (this.#broughtBytes > 0 && this.#broughtBytes + broughtBytes > MOST_BYTES) {
      throw overloaded(`calls with ${this.#broughtBytes} bytes of input and files run or wait`);
    }
    this.#broughtBytes += broughtBytes;
    const id = newInvocationId(this.#edge);
    const giveUp = new AbortController();
    const result = this.#functions.invoke(call, giveUp.signal).finally(() => {
      this.#broughtBytes -= broughtBytes;
    });
    const invocation: Invocation = { project: call.project, result, giveUp, bytes: undefined };
    this.#kept.set(id, invocation);
    result.then(
      (value) => this.#ended(id, bytesOf(value)),
      () => this.#ended(id, 0),
    );
    return id;
  }

  async wait(
    id: InvocationId,
    { project, waitMs }: InvocationWait,
    signal: AbortSignal,
  ): Promise<FunctionResult | undefined> {
    const known = this.#kept.get(id);
    // Calls of others are as unknown as those that never were.
    if (known?.project !== project) {
      throw new SandboxError("NotFound", `no call ${id}`, { hint: "results are kept for ten minutes" });
    }
    const { promise, resolve } = Promise.withResolvers<undefined>();
    using _timer = this.#clock.after(waitMs, () => resolve(undefined));
    // The timer is gone with this scope.
    return await abortable(Promise.race([known.result, promise]), signal);
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

  #ended(id: InvocationId, bytes: number): void {
    const known = this.#kept.get(id);
    if (known === undefined) return;
    known.bytes = bytes;
    this.#clock.after(KEPT_MS, () => this.#kept.delete(id));
    let left = [...this.#kept.values()].reduce((sum, each) => sum + (each.bytes ?? 0), 0);
    for (const [oldest, { bytes: freed }] of this.#kept) {
      if (left <= MOST_BYTES || oldest === id) return;
      if (freed === undefined) continue;
      this.#kept.delete(oldest);
      left -= freed;
    }
  }
}

function bytesOf(value: FunctionCall | FunctionResult): number {
  return separate(value).bytes.reduce((sum, { length }) => sum + length, 0);
}

function overloaded(message: string): SandboxError {
  return new SandboxError("Overloaded", message, {
    hint: "drop calls whose results you have (DELETE), or try again later",
    details: { retryAfterMs: 10_000 },
  });
}
