import { type ErrorKind, SandboxError } from "#core/errors.ts";
import type { FunctionCall, HeldResult } from "#core/functions.ts";
import { type EdgeId, edgeOf, type InvocationId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { Watcher } from "../watcher/watcher.ts";

/** Sends calls to nodes: the one whose line is shortest first. */
export class Invoker {
  readonly #watcher: Watcher;
  /** Calls that this control plane has on each node now. */
  readonly #sent = new Map<EdgeId, number>();

  constructor(watcher: Watcher) {
    this.#watcher = watcher;
  }

  /** Rejects with what the last node said when none takes it. A call whose node is lost goes to another one: it left nothing behind. */
  invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult> {
    return this.#onOne(["Overloaded", "NodeFull", "Unavailable"], signal, (node) => node.invoke(call, signal));
  }

  /** The same for a call whose result waits at the node. One that may have been started is not started again. */
  start(call: FunctionCall, signal: AbortSignal): Promise<InvocationId> {
    return this.#onOne(["Overloaded", "NodeFull"], signal, (node) => node.startInvocation(call, signal));
  }

  /** The node that carries a started call out. Throws `NotFound`. */
  nodeOf(id: InvocationId): Node {
    return this.#watcher.node(edgeOf(id));
  }

  /** Asks one node after the other while they answer with one of `elsewhere`. */
  async #onOne<T>(elsewhere: readonly ErrorKind[], signal: AbortSignal, ask: (node: Node) => Promise<T>): Promise<T> {
    let refusal: SandboxError | undefined;
    for (const edge of this.#ranked()) {
      this.#count(edge, 1);
      try {
        return await ask(this.#watcher.node(edge));
      } catch (error) {
        if (!(error instanceof SandboxError) || !elsewhere.includes(error.kind)) throw error;
        signal.throwIfAborted();
        refusal = error;
      } finally {
        this.#count(edge, -1);
      }
    }
    throw (
      refusal ??
      new SandboxError("Unavailable", "no node that answers runs functions", {
        hint: "start a node, or wait until one is back",
      })
    );
  }

  /** What a node said of itself is a moment old, and what was sent from here since is known better. */
  #ranked(): readonly EdgeId[] {
    const able = this.#watcher.candidates().filter(({ info, lost }) => !lost && info.functions !== undefined);
    const line = ({ info }: (typeof able)[number]) =>
      Math.max(this.#sent.get(info.edge) ?? 0, (info.functions?.running ?? 0) + (info.functions?.queued ?? 0));
    return able.sort((a, b) => line(a) - line(b)).map(({ info }) => info.edge);
  }

  #count(edge: EdgeId, change: 1 | -1): void {
    this.#sent.set(edge, (this.#sent.get(edge) ?? 0) + change);
  }
}
