import type { Backend } from "#core/backend.ts";
import type { Clock } from "#core/clock.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { FunctionCall, FunctionHost, Functions, HeldResult } from "#core/functions.ts";
import type { InvocationId, SandboxId } from "#core/ids.ts";
import type { InvocationWait, Node, NodeInfo, ResourceCount, SandboxFilter, UsageRead } from "#core/node.ts";
import { canonical } from "#core/pack.ts";
import type { ForkChild, Forked, ForkHow, PackedDiff, PackOptions } from "#core/packing.ts";
import type { BackendKind, LayerDigest, Lifetime, SandboxInfo, SandboxSpec } from "#core/sandbox.ts";
import type { SandboxUsage } from "#core/usage.ts";
import { Admission, overcommitted } from "#edge/admission.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import type { EdgeConfig, EdgeLog } from "#edge/config.ts";
import type { Origin } from "#edge/copies/carried.ts";
import { forkSandbox } from "#edge/copies/fork.ts";
import { packDiff } from "#edge/copies/packing.ts";
import { SandboxDriver } from "#edge/driver.ts";
import type { DriverParts } from "#edge/driver-parts.ts";
import { Invocations } from "#edge/functions/invocations.ts";
import { leaseFor } from "#edge/functions/lease.ts";
import { GuestCalls } from "#edge/guest-calls.ts";
import { Journal } from "#edge/journal.ts";
import { forEachOf, recoverAll } from "#edge/recovery.ts";
import { type Booked, countResources } from "#edge/resources.ts";
import { Rests } from "#edge/rests.ts";
import { listSandboxes } from "#edge/sandbox-list.ts";
import { newSandboxRow, SandboxRows } from "#edge/sandbox-rows.ts";
import { readUsage, usageHost } from "#edge/usage.ts";
import { validateLifetime, validateSandbox } from "#edge/validate.ts";
import { Timers } from "#edge/waiting/timers.ts";

/** What an edge is made of. */
export interface EdgeOptions {
  readonly config: EdgeConfig;
  readonly backends: readonly Backend[];
  readonly clock: Clock;
  readonly log: EdgeLog;
  /** Makes what runs functions here, with its share of this node; undefined: nothing does. */
  readonly functions?: ((host: FunctionHost) => Functions) | undefined;
  /** Sees that the store that nodes share has these layers; undefined: they share none. */
  readonly share?: ((layers: readonly LayerDigest[], signal: AbortSignal) => Promise<void>) | undefined;
  /** Measures what the machine could still give to sandboxes. */
  availableMemoryMiB(): number;
}

/** Opens the journal and takes up what it names: when this resolves, every sandbox is adopted, failed or removed. */
export async function openEdge(options: EdgeOptions): Promise<Edge> {
  const journal = Journal.open(options.config.dataDir);
  const edge = new Edge(options, journal);
  try {
    await edge.recover();
  } catch (error) {
    await edge.close({ keepSandboxes: true });
    throw error;
  }
  return edge;
}

/** A node: owns its sandboxes, their time limits and the record of both. The backends belong to the caller. */
export class Edge extends GuestCalls implements Node {
  readonly #options: EdgeOptions;
  readonly #journal: Journal;
  readonly #backends: ReadonlyMap<BackendKind, Backend>;
  readonly #drivers = new Map<SandboxId, SandboxDriver>();
  readonly #timers: Timers;
  readonly #admission: Admission;
  readonly #parts: DriverParts;
  readonly #functions: Functions | undefined;
  readonly #invocations: Invocations | undefined;
  readonly #rests: Rests;
  readonly #startedAtMs: number;
  #closing = false;

  constructor(options: EdgeOptions, journal: Journal) {
    super();
    const { config, clock, log } = options;
    this.#options = options;
    this.#journal = journal;
    this.#backends = new Map(options.backends.map((backend) => [backend.kind, backend]));
    this.#timers = new Timers(clock);
    const rests = { clock, log, timers: this.#timers, afterMs: config.restAfterMs };
    this.#rests = new Rests({ ...rests, sandboxes: () => this.#drivers });
    this.#startedAtMs = clock.now();
    const memory = { reserveMiB: config.memoryReserveMiB, availableMiB: () => options.availableMemoryMiB() };
    this.#admission = new Admission(overcommitted(config), memory);
    this.#parts = {
      config,
      clock,
      log,
      journal,
      rows: new SandboxRows(journal),
      timers: this.#timers,
      admission: this.#admission,
      gone: (id) => this.#drivers.delete(id),
    };
    this.#functions = options.functions?.({
      lease: (resources) => leaseFor(this.#admission, config.edge, resources),
      isShort: () => memory.availableMiB() < memory.reserveMiB,
    });
    if (this.#functions !== undefined) {
      this.#invocations = new Invocations(this.#functions, { clock, edge: config.edge });
    }
  }

  /** Takes up the journal. Called once, before anything else. */
  async recover(): Promise<void> {
    const { log } = this.#options;
    const { edge, dataDir } = this.#options.config;
    for (const row of this.#parts.rows.all()) {
      const backend = this.#backends.get(row.spec.backend);
      if (backend === undefined) {
        throw new SandboxError("FailedPrecondition", `sandbox ${row.spec.id} needs the ${row.spec.backend} backend`, {
          hint: "start the node with that backend again, and destroy its sandboxes first",
        });
      }
      const driver = new SandboxDriver(this.#parts, backend, row);
      this.#drivers.set(row.spec.id, driver);
      this.#admission.adopt(driver.held, row.slot);
    }
    await recoverAll({ edge, dataDir, log, backends: this.#backends.values(), drivers: this.#drivers });
    if ([...this.#backends.values()].some(({ rest }) => rest !== undefined)) this.#rests.begin();
    this.#lookAhead();
  }

  async info(signal: AbortSignal): Promise<NodeInfo> {
    this.#enter(signal);
    const { config } = this.#options;
    return {
      edge: config.edge,
      version: config.version,
      startedAtMs: this.#startedAtMs,
      backends: [...this.#backends.keys()],
      capacity: this.#admission.limit,
      promised: this.#admission.promised,
      sandboxes: this.#drivers.size,
      creating: this.#creating,
      functions: this.#functions?.load,
    };
  }

  async create(spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo> {
    this.#enter(signal);
    validateSandbox(spec, this.#options.config.edge);
    for (let known = this.#drivers.get(spec.id); known !== undefined; known = this.#drivers.get(spec.id)) {
      // The id may be used again once nothing is left under it.
      // Its removal is joined, not only waited for: one that fails is told to this caller, too.
      if (known.state === "destroying") await abortable(known.destroy("its id is asked for again"), signal);
      else return this.#join(known, spec, signal);
      this.#enter(signal);
    }
    try {
      return await (await this.#beginOrMakeRoom(spec, signal)).ready(signal);
    } finally {
      this.#lookAhead();
    }
  }

  async inspect(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    this.#enter(signal);
    return this.#driver(id).info;
  }

  async list(filter: SandboxFilter, signal: AbortSignal): Promise<readonly SandboxInfo[]> {
    this.#enter(signal);
    return listSandboxes(this.#drivers, filter);
  }

  async extend(id: SandboxId, lifetime: Lifetime, signal: AbortSignal): Promise<SandboxInfo> {
    this.#enter(signal);
    validateLifetime(lifetime);
    const driver = this.#driver(id);
    driver.extend(lifetime);
    return driver.info;
  }

  async pause(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    return this.calling(id, signal).driver.pause(signal);
  }

  async resume(id: SandboxId, signal: AbortSignal): Promise<SandboxInfo> {
    return this.calling(id, signal).driver.resume(signal);
  }

  async destroy(id: SandboxId, signal: AbortSignal): Promise<void> {
    this.#enter(signal);
    const driver = this.#drivers.get(id);
    if (driver !== undefined) await abortable(driver.destroy("asked for"), signal);
  }

  async *usage(id: SandboxId, read: UsageRead, signal: AbortSignal): AsyncGenerator<SandboxUsage, void, undefined> {
    this.#enter(signal);
    yield* readUsage(read, usageHost(this.calling(id, signal)));
  }

  async packDiff(id: SandboxId, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    return packDiff(this.calling(id, signal), options);
  }

  async fork(id: SandboxId, children: readonly ForkChild[], how: ForkHow, signal: AbortSignal): Promise<Forked> {
    const call = this.calling(id, signal);
    try {
      return await forkSandbox(
        call,
        { children, ...how },
        {
          share: this.#options.share,
          edge: this.#options.config.edge,
          known: (child) => this.#drivers.get(child),
          begin: (spec, origin) => this.#beginOrMakeRoom(spec, signal, origin),
        },
      );
    } finally {
      this.#lookAhead();
    }
  }

  async invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult> {
    this.#enter(signal);
    return required(this.#functions).invoke(call, signal);
  }

  async startInvocation(call: FunctionCall, signal: AbortSignal): Promise<InvocationId> {
    this.#enter(signal);
    return required(this.#invocations).start(call);
  }

  async waitInvocation(id: InvocationId, wait: InvocationWait, signal: AbortSignal): Promise<HeldResult | undefined> {
    this.#enter(signal);
    return required(this.#invocations).wait(id, wait, signal);
  }

  async dropInvocation(id: InvocationId, project: string, signal: AbortSignal): Promise<void> {
    this.#enter(signal);
    this.#invocations?.drop(id, project);
  }

  async resources(signal: AbortSignal): Promise<readonly ResourceCount[]> {
    this.#enter(signal);
    const booked = [...this.#drivers].map(
      ([id, { spec, state }]) => [id as string, { backend: spec.backend, state }] as const,
    );
    const pools = [...(this.#functions?.containers ?? [])].map(
      (id) => [id, { backend: "container", state: "ready" }] as const,
    );
    return countResources(this.#backends.values(), new Map<string, Booked>([...booked, ...pools]));
  }

  /** Stops: removes every sandbox, or leaves them to the next edge on the same data directory. Safe twice. */
  async close(options: { readonly keepSandboxes: boolean }): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#invocations?.[Symbol.dispose]();
    await this.#functions?.[Symbol.asyncDispose]();
    const drivers = [...this.#drivers.values()];
    if (!options.keepSandboxes) {
      // What cannot be removed stays in the journal, and is told there.
      await forEachOf(drivers, (driver) => driver.destroy("the node is closing", "Unavailable").catch(() => undefined));
    }
    await Promise.all(drivers.map((driver) => driver.close()));
    this.#timers[Symbol.dispose]();
    this.#journal[Symbol.dispose]();
  }

  get #creating(): number {
    return [...this.#drivers.values()].filter(({ state }) => state === "creating").length;
  }

  #enter(signal: AbortSignal): void {
    signal.throwIfAborted();
    if (this.#closing) throw new SandboxError("Unavailable", "the node is closing", { hint: "ask again in a while" });
  }

  #driver(id: SandboxId): SandboxDriver {
    const driver = this.#drivers.get(id);
    if (driver === undefined) throw new SandboxError("NotFound", `no sandbox ${id}`);
    return driver;
  }

  async #join(known: SandboxDriver, spec: SandboxSpec, signal: AbortSignal): Promise<SandboxInfo> {
    if (canonical(known.spec) !== canonical(spec)) {
      throw new SandboxError("AlreadyExists", `sandbox ${spec.id} exists with another specification`);
    }
    if (known.state === "failed") await known.agent("use", signal);
    return known.ready(signal);
  }

  /** Lets backends begin with what will be asked for next. */
  #lookAhead(): void {
    for (const backend of this.#backends.values()) {
      if (backend.foresight > 0) backend.expect(this.#admission.next(backend.foresight).map((slot) => ({ slot })));
    }
  }

  /** What functions hold without need is the sandbox's. */
  async #beginOrMakeRoom(spec: SandboxSpec, signal: AbortSignal, origin?: Origin): Promise<SandboxDriver> {
    try {
      return this.#begin(spec, origin);
    } catch (error) {
      const isFull = error instanceof SandboxError && error.kind === "NodeFull";
      if (!isFull || this.#functions === undefined || this.#functions.containers.size === 0) throw error;
      await this.#functions.shrink();
      this.#enter(signal);
      return this.#begin(spec, origin);
    }
  }

  #begin(spec: SandboxSpec, origin?: Origin): SandboxDriver {
    const backend = this.#backends.get(spec.backend);
    if (backend === undefined) {
      throw new SandboxError("FailedPrecondition", `this node has no ${spec.backend} backend`, {
        details: { backends: [...this.#backends.keys()] },
      });
    }
    const { slot } = this.#admission.admit(spec.resources);
    const row = newSandboxRow(spec, slot, this.#options.clock.now());
    const driver = new SandboxDriver(this.#parts, backend, row);
    this.#drivers.set(spec.id, driver);
    driver.create(origin);
    return driver;
  }

  /** Throws `NotFound`. */
  protected calling(id: SandboxId, signal: AbortSignal): CommandCall {
    this.#enter(signal);
    return { driver: this.#driver(id), clock: this.#options.clock, signal };
  }
}

function required<T>(part: T | undefined): T {
  if (part !== undefined) return part;
  throw new SandboxError("FailedPrecondition", "this node runs no functions");
}
