import { SandboxError, toWire } from "#core/errors.ts";
import { type EdgeId, edgeOf, parseSandboxId, type SandboxId } from "#core/ids.ts";
import { canonical } from "#core/pack.ts";
import type { Copying, ForkChild, Forked, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { Carried } from "#edge/carried.ts";
import type { CommandCall } from "#edge/command-calls.ts";
import type { SandboxDriver } from "#edge/driver.ts";

/** One instant for all of them; more would hold up whoever waits for the first. */
const MAX_CHILDREN = 256;

/** Where there are no copies, all goes into a layer: nothing of a sandbox is kept from its own children. */
const EVERYTHING: PackOptions = { exclude: [], keep: ["credentials", "history"], consistent: true };

/** What a fork needs of its edge. */
export interface ForkHost {
  readonly edge: EdgeId;
  known(id: SandboxId): SandboxDriver | undefined;
  /** Begins a bring-up, which waits for `copied`. Rejects when the node has no room. */
  begin(spec: SandboxSpec, copied: Promise<Carried | undefined> | undefined): Promise<SandboxDriver>;
}

//   intent of each child ─► one instant of the parent ─► a copy for each ─► each comes up by itself
//
// Where processes are copied, too, the records of those commands go along: before the instant, what the edge has of their outputs; from there
// on, what each child's own agent has kept, which forgets nothing in between.

/** See `Node.fork`. The parent does not count as idle meanwhile; its removal ends what is not copied yet. */
export async function forkSandbox(
  { driver, signal }: CommandCall,
  children: readonly ForkChild[],
  host: ForkHost,
): Promise<Forked> {
  validateChildren(children, host.edge);
  using _busy = driver.busy();
  await driver.awake("fork", signal);
  const { backend } = driver.beside("fork");
  const { copying } = backend;
  if (copying === undefined) {
    throw new SandboxError("FailedPrecondition", `sandboxes of the ${backend.kind} backend cannot be forked`, {
      hint: "create others, and copy files into them",
    });
  }
  const parent = driver.info.spec;
  const specs = children.map((child) => childSpec(parent, child));
  const parts = { packing: backend.packing, copying, driver, parent, host };
  await using fork = new Fork(parts, AbortSignal.any([signal, driver.leaving]));
  await fork.begin(specs.filter(({ id }) => host.known(id) === undefined));
  const outcomes = await Promise.all(specs.map((spec) => fork.outcome(spec, signal)));
  return { frozenMs: fork.frozenMs, outcomes };
}

interface ForkParts {
  readonly packing: Packing | undefined;
  readonly copying: Copying;
  readonly driver: SandboxDriver;
  readonly parent: SandboxSpec;
  readonly host: ForkHost;
}

class Fork implements AsyncDisposable {
  frozenMs = 0;
  readonly #parts: ForkParts;
  readonly #signal: AbortSignal;
  readonly #refused = new Map<SandboxId, unknown>();
  readonly #carried = new AsyncDisposableStack();

  constructor(parts: ForkParts, signal: AbortSignal) {
    this.#parts = parts;
    this.#signal = signal;
  }

  /** Rejects when there is nothing to begin with; children that were begun hear of it and go. */
  async begin(specs: readonly SandboxSpec[]): Promise<void> {
    if (specs.length === 0) return;
    const { packing, copying, parent } = this.#parts;
    if (copying.copies || packing === undefined) return await this.#beginWithCopies(specs);
    const { layers, frozenMs } = await packing.pack(parent, EVERYTHING, this.#signal);
    this.frozenMs = frozenMs;
    for (const spec of specs) await this.#beginOne({ ...spec, layers }, undefined);
  }

  async #beginWithCopies(specs: readonly SandboxSpec[]): Promise<void> {
    const { copying, driver, parent } = this.#parts;
    const copied = Promise.withResolvers<Carried | undefined>();
    // Whether anybody waits for it is not this object's concern.
    copied.promise.catch(() => undefined);
    for (const spec of specs) await this.#beginOne(spec, copied.promise);
    const begun = specs.map(({ id }) => id).filter((id) => !this.#refused.has(id));
    try {
      const carrying = copying.processes ? this.#carried.use(driver.commands.carry()) : undefined;
      const { frozenMs } = await copying.copy(parent, begun, this.#signal);
      carrying?.copied();
      this.frozenMs = frozenMs;
      copied.resolve(carrying?.carried);
    } catch (error) {
      copied.reject(error);
      throw error;
    }
  }

  async #beginOne(spec: SandboxSpec, copied: Promise<Carried | undefined> | undefined): Promise<void> {
    try {
      await this.#parts.host.begin(spec, copied);
    } catch (error) {
      this.#refused.set(spec.id, error);
    }
  }

  /** Children that have not come up by now have nobody who waits for them. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#carried.disposeAsync();
  }

  /** What became of a child, whoever began it. */
  async outcome(spec: SandboxSpec, signal: AbortSignal): Promise<Forked["outcomes"][number]> {
    try {
      if (this.#refused.has(spec.id)) throw this.#refused.get(spec.id);
      const driver = this.#parts.host.known(spec.id);
      if (driver === undefined) throw new SandboxError("Unavailable", `the fork ${spec.id} was removed`);
      const { parent, labels } = driver.spec;
      if (parent !== spec.parent || canonical(labels) !== canonical(spec.labels)) {
        throw new SandboxError("AlreadyExists", `sandbox ${spec.id} exists, and is another one`);
      }
      await driver.ready(signal);
      return {};
    } catch (error) {
      signal.throwIfAborted();
      return { error: toWire(error) };
    }
  }
}

/** A sandbox is called by its id unless it was given a name, and so is each child. */
function childSpec(parent: SandboxSpec, { id, labels }: ForkChild): SandboxSpec {
  const hostname = parent.hostname === parent.id ? id : parent.hostname;
  return { ...parent, id, hostname, labels: { ...parent.labels, ...labels }, parent: parent.id };
}

function validateChildren(children: readonly ForkChild[], edge: EdgeId): void {
  if (!Array.isArray(children) || children.length < 1 || children.length > MAX_CHILDREN) {
    refuse("children", `must be 1 to ${MAX_CHILDREN}`);
  }
  for (const { id, labels } of children) {
    if (edgeOf(parseSandboxId(String(id))) !== edge) refuse("id", `names another edge than ${edge}`);
    if (typeof labels !== "object" || labels === null) refuse("labels", "must be names and values");
  }
  if (new Set(children.map(({ id }) => id)).size < children.length) refuse("id", "is given twice");
}

function refuse(field: string, what: string): never {
  throw new SandboxError("InvalidArgument", `${field} ${what}`, { details: { field } });
}
