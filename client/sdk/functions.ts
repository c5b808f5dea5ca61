import type {
  CallView,
  ErrorBody,
  FunctionReply,
  InvokeFunction,
  InvokeManyEvent,
  PrepareEvent,
  RuntimeList,
  RuntimeView,
  StartedCall,
} from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { DsecError, errorFromBody, errorFromReply } from "./errors.ts";
import { lines } from "./lines.ts";
import { segment } from "./paths.ts";

const FUNCTIONS = "/v1/functions";
/** Of one question for a result; the next follows at once. */
const POLL_MS = 20_000;

/** How a batch is carried out. */
export interface InvokeManyOptions extends CallOptions {
  /** How many at once; 16 unless said otherwise. */
  readonly concurrency?: number | undefined;
}

/** What came of one call of a batch, by its index. */
export type Invoked =
  | { readonly index: number; readonly result: FunctionReply }
  | { readonly index: number; readonly error: DsecError };

/** What preparing may report on its way. */
export interface PrepareOptions extends CallOptions {
  readonly onProgress?: (line: string) => void;
}

/** Short programs that need no sandbox. */
export class Functions {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Runs a program once. Whatever its code does is told in the result; a rejection says that it was not run. */
  invoke(call: InvokeFunction, options: CallOptions = {}): Promise<FunctionReply> {
    // What was run left nothing behind: it may be run again.
    return this.#caller.json({ ...options, method: "POST", path: FUNCTIONS, json: call, repeatable: true });
  }

  /** Takes a call on and resolves at once with its id; its result waits for ten minutes. */
  async start(call: InvokeFunction, options: CallOptions = {}): Promise<string> {
    const started = { ...options, method: "POST", path: `${FUNCTIONS}/calls`, json: call } as const;
    return (await this.#caller.json<StartedCall>(started)).id;
  }

  /** The result of a started call, however long it takes; rejects as `invoke` does. */
  async result(id: string, options: CallOptions = {}): Promise<FunctionReply> {
    const path = `${FUNCTIONS}/calls/${segment(id)}`;
    for (;;) {
      const view = await this.#caller.json<CallView>({ ...options, method: "GET", path, query: { waitMs: POLL_MS } });
      if (view.result !== undefined) return view.result;
    }
  }

  /** Gives a started call up, or its result. */
  async drop(id: string, options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "DELETE", path: `${FUNCTIONS}/calls/${segment(id)}` });
  }

  /** Runs many, and yields what came of each as it is done. */
  async *invokeMany(
    calls: readonly InvokeFunction[],
    options: InvokeManyOptions = {},
  ): AsyncGenerator<Invoked, void, undefined> {
    const { concurrency, signal, timeoutMs } = options;
    const json = { calls, ...(concurrency === undefined ? {} : { concurrency }) };
    const reply = await this.#caller.open({ method: "POST", path: `${FUNCTIONS}/batch`, json, signal, timeoutMs });
    let left = calls.length;
    for await (const line of lines(reply.body)) {
      const event = JSON.parse(line) as InvokeManyEvent | ErrorBody;
      if (!("index" in event)) throw errorFromReply(500, line);
      left -= 1;
      yield "result" in event ? event : { index: event.index, error: errorFromBody({ error: event.error }) };
    }
    if (left > 0)
      throw new DsecError("Internal", "the server ended before all calls were done", { hint: "see the node's log" });
  }

  /** What programs can be written in. */
  async runtimes(options: CallOptions = {}): Promise<readonly RuntimeView[]> {
    const call = { ...options, method: "GET", path: `${FUNCTIONS}/runtimes` } as const;
    return (await this.#caller.json<RuntimeList>(call)).runtimes;
  }

  /** Makes a runtime's base ahead of its first call. */
  async prepare(runtime: string, options: PrepareOptions = {}): Promise<RuntimeView> {
    const { onProgress, signal, timeoutMs } = options;
    const path = `${FUNCTIONS}/runtimes/${segment(runtime)}/prepare`;
    const reply = await this.#caller.open({ method: "POST", path, signal, timeoutMs });
    for await (const line of lines(reply.body)) {
      const event = JSON.parse(line) as PrepareEvent;
      if ("progress" in event) onProgress?.(event.progress);
      else if ("error" in event) throw errorFromReply(500, line);
      else return event.runtime;
    }
    throw new DsecError("Internal", "the server ended without a result", { hint: "see the node's log" });
  }
}
