import type { NodeView, ResourceCountView, StoreCollectReply, StoreReply, StoreView, WhoAmI } from "#api/index.ts";
import { Artifacts } from "./artifacts.ts";
import { Caller, type CallOptions, type TimeLimit } from "./caller.ts";
import { DsecError } from "./errors.ts";
import { Functions } from "./functions.ts";
import { NodeTransport } from "./node-transport.ts";
import { segment } from "./paths.ts";
import type { Away } from "./patience.ts";
import { Sandboxes } from "./sandboxes.ts";
import type { Transport } from "./transport.ts";

/** Objects of a store are removed one by one. */
const COLLECT_MS = 3_600_000;
/** As long as a node may take to start: it has given up by then. */
const PATIENCE_MS = 120_000;

/** Where the apiserver is and who asks. */
export interface ClientOptions {
  readonly url: string;
  readonly token?: string | undefined;
  /** Another way to the server than HTTP over `node:http`. */
  readonly transport?: Transport;
  /** Attempts after the first for calls that may be repeated; 3 unless said otherwise. */
  readonly retries?: number;
  /** For calls that set no limit of their own; 60 seconds unless said otherwise. */
  readonly timeoutMs?: number;
  /**
   * How long whoever follows or waits for something stays with a server that does not answer any more: readers of output, attachments,
   * samples, watches, `run`, `wait`. Two minutes unless said otherwise: what a node may take to start again. 0 gives up at once.
   */
  readonly patienceMs?: number;
  /** Told when such a server is away, at each attempt. */
  readonly onAway?: (away: Away) => void;
  /** Told of each reply which time limit the server keeps. */
  readonly onLimit?: (limit: TimeLimit) => void;
}

/** A connection to one DSec. Kept connections do not keep the process alive once nothing is asked. */
export class Client implements Disposable {
  readonly sandboxes: Sandboxes;
  readonly artifacts: Artifacts;
  readonly functions: Functions;
  readonly nodes: Nodes;
  readonly #caller: Caller;

  constructor(options: ClientOptions) {
    // Said here, where it is given: the header it goes into would only say that some character is wrong.
    if (/[^\x21-\x7e]/.test(options.token ?? "")) {
      throw new DsecError("Unauthenticated", "the token has characters that no token has", {
        hint: "a token is one line of letters, digits, _ and -",
      });
    }
    this.#caller = new Caller({
      transport: options.transport ?? new NodeTransport(options.url),
      token: options.token,
      retries: options.retries ?? 3,
      timeoutMs: options.timeoutMs ?? 60_000,
      patienceMs: options.patienceMs ?? PATIENCE_MS,
      onAway: options.onAway,
      onLimit: options.onLimit,
    });
    this.sandboxes = new Sandboxes(this.#caller);
    this.artifacts = new Artifacts(this.#caller);
    this.functions = new Functions(this.#caller);
    this.nodes = new Nodes(this.#caller);
  }

  /** Who the token belongs to; the cheapest call that proves it. */
  whoami(options: CallOptions = {}): Promise<WhoAmI> {
    return this.#caller.json({ ...options, method: "GET", path: "/v1/whoami" });
  }

  /** Ends kept connections; calls under way break. */
  close(): void {
    this.#caller.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The nodes under the control plane. */
export class Nodes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Every node, with the age of what is known about it. */
  async list(options: CallOptions = {}): Promise<readonly NodeView[]> {
    const call = { ...options, method: "GET", path: "/v1/nodes" } as const;
    return (await this.#caller.json<{ readonly nodes: readonly NodeView[] }>(call)).nodes;
  }

  /** The store that nodes share, and why it cannot be used, if so; undefined when there is none. */
  async store(options: CallOptions = {}): Promise<StoreView | undefined> {
    return (await this.#caller.json<StoreReply>({ ...options, method: "GET", path: "/v1/store" })).store;
  }

  /** Removes from the store that nodes share what no tag and no node needs; `dryRun`: only counts it. Takes long where there is much. */
  collectStore({
    dryRun = false,
    ...options
  }: CallOptions & { readonly dryRun?: boolean } = {}): Promise<StoreCollectReply> {
    const path = `/v1/store/collect${dryRun ? "?dryRun=true" : ""}`;
    return this.#caller.json({ timeoutMs: COLLECT_MS, ...options, method: "POST", path });
  }

  /** What exists on a node against what should. */
  async resources(edge: string, options: CallOptions = {}): Promise<readonly ResourceCountView[]> {
    const path = `/v1/nodes/${segment(edge)}/resources`;
    const call = { ...options, method: "GET", path } as const;
    return (await this.#caller.json<{ readonly resources: readonly ResourceCountView[] }>(call)).resources;
  }
}
