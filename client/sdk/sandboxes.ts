import { randomUUID } from "node:crypto";
import type { CreateSandbox, SandboxList, SandboxPatch, SandboxView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { DsecError, outcomeUnknown } from "./errors.ts";
import {
  type Created,
  type CreateManyOptions,
  createMany,
  type ManyOptions,
  type Ran,
  type Removed,
  type RunManyOptions,
  removeMany,
  runMany,
} from "./many.ts";
import { sandboxPath } from "./paths.ts";
import { type CommandLine, Sandbox } from "./sandbox.ts";

/** A create may have to fetch layers and wait for room. */
const CREATE_TIMEOUT_MS = 120_000;

/** Taking back a create that was given up may hold its caller for so long at most. */
const UNDO_TIMEOUT_MS = 15_000;

/** What a create takes besides the sandbox's own description. */
export interface CreateOptions extends CallOptions {
  /** The same key gives the same sandbox, however often the create is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** Which sandboxes to list. */
export interface ListOptions extends CallOptions {
  readonly labels?: Readonly<Record<string, string>>;
  /** Told the nodes that could not be asked: their sandboxes are missing from the list. */
  readonly onUnreachable?: (edges: readonly string[]) => void;
}

/** The sandboxes of the token's project. */
export class Sandboxes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Resolves when the sandbox is ready. A create that is given up leaves no sandbox whose id nobody knows. */
  async create(request: CreateSandbox, options: CreateOptions = {}): Promise<Sandbox> {
    const key = options.idempotencyKey ?? randomUUID();
    const { signal, timeoutMs = CREATE_TIMEOUT_MS } = options;
    try {
      const view = await this.#create(request, key, { signal, timeoutMs });
      return new Sandbox(this.#caller, view.id, view);
    } catch (error) {
      // Under a key of the caller's own the sandbox is found again; under one that was made up here it never would be.
      if (options.idempotencyKey === undefined && outcomeUnknown(error, signal)) await this.#undo(request, key);
      throw error;
    }
  }

  /** Ids of all that carry the labels; who wants all of them must hear when some cannot be known. */
  async #idsOf(
    labels: Readonly<Record<string, string>>,
    { signal, timeoutMs }: CallOptions,
  ): Promise<readonly string[]> {
    if (Object.keys(labels).length === 0) {
      throw new DsecError("InvalidArgument", "no label is given", { hint: "name the sandboxes by their ids" });
    }
    const onUnreachable = (edges: readonly string[]) => {
      throw new DsecError("Unavailable", `nodes that may have such sandboxes do not answer: ${edges.join(", ")}`);
    };
    const views = await Array.fromAsync(this.list({ labels, signal, timeoutMs, onUnreachable }));
    return views.map(({ id }) => id);
  }

  #create(request: CreateSandbox, key: string, options: CallOptions): Promise<SandboxView> {
    return this.#caller.json<SandboxView>({
      ...options,
      method: "POST",
      path: "/v1/sandboxes",
      json: request,
      headers: { "idempotency-key": key },
      repeatable: true,
    });
  }

  /** The same key tells which sandbox it was, or makes one that goes at once. When nobody answers there is nothing to do. */
  async #undo(request: CreateSandbox, key: string): Promise<void> {
    try {
      const { id } = await this.#create(request, key, { timeoutMs: UNDO_TIMEOUT_MS });
      await this.remove(id, { timeoutMs: UNDO_TIMEOUT_MS });
    } catch (error) {
      if (!(error instanceof DsecError)) throw error;
    }
  }

  /** A handle for an id. Nothing is asked: a sandbox that does not exist shows at its first use. */
  use(id: string): Sandbox {
    return new Sandbox(this.#caller, id);
  }

  /** What is known about one sandbox. */
  info(id: string, options: CallOptions = {}): Promise<SandboxView> {
    return this.#caller.json({ ...options, method: "GET", path: sandboxPath(id) });
  }

  /** Every sandbox that matches, page by page. */
  async *list(options: ListOptions = {}): AsyncGenerator<SandboxView> {
    const labels = Object.entries(options.labels ?? {}).map(([name, value]) => `${name}=${value}`);
    for (let cursor: string | undefined; ; ) {
      const page: SandboxList = await this.#caller.json({
        signal: options.signal,
        timeoutMs: options.timeoutMs,
        method: "GET",
        path: "/v1/sandboxes",
        query: { label: labels.length === 0 ? undefined : labels, cursor },
      });
      if (page.unreachable !== undefined) options.onUnreachable?.(page.unreachable);
      yield* page.sandboxes;
      cursor = page.cursor;
      if (cursor === undefined) return;
    }
  }

  /**
   * Makes many, some at a time, and yields each as it is ready or has failed: one that fails or is slow concerns no other. Whoever
   * stops before the end gets back what was yielded; the rest is taken back, unless it has keys to be found by.
   */
  createMany(count: number, request: CreateSandbox, options: CreateManyOptions = {}): AsyncGenerator<Created> {
    return createMany(this, count, request, options);
  }

  /** Runs a command in many to its end, some at a time, and yields each as it is done. Any end of a command is a result. */
  runMany(sandboxes: Iterable<Sandbox>, line: CommandLine, options: RunManyOptions = {}): AsyncGenerator<Ran> {
    return runMany(sandboxes, line, options);
  }

  /** Removes those that carry every label, or those named, some at a time, and yields each as nothing of it is left. */
  async *removeMany(
    which: { readonly labels: Readonly<Record<string, string>> } | { readonly ids: Iterable<string> },
    options: ManyOptions = {},
  ): AsyncGenerator<Removed> {
    yield* removeMany(this, "ids" in which ? which.ids : await this.#idsOf(which.labels, options), options);
  }

  /** Moves the time limits of a live sandbox. */
  extend(id: string, patch: SandboxPatch, options: CallOptions = {}): Promise<SandboxView> {
    return this.#caller.json({ ...options, method: "PATCH", path: sandboxPath(id), json: patch, repeatable: true });
  }

  /** Resolves when nothing of it is left. Succeeds for sandboxes that are gone already. */
  async remove(id: string, options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "DELETE", path: sandboxPath(id), repeatable: true });
  }
}
