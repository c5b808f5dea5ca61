import { asSandboxError, SandboxError, toWire } from "#core/errors.ts";
import { type EdgeId, edgeOf, parseSandboxId, type SandboxId } from "#core/ids.ts";
import { canonical } from "#core/pack.ts";
import {
  type Copying,
  childSpec,
  FORK_SNAPSHOTS,
  type ForkChild,
  type Forked,
  type ForkHow,
  type ForkSnapshot,
  type PackedDiff,
  type Packing,
  type PackOptions,
} from "#core/packing.ts";
import type { LayerDigest, SandboxSpec } from "#core/sandbox.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import type { Carried, Origin } from "#edge/copies/carried.ts";
import type { SandboxDriver } from "#edge/driver.ts";
import { cannotKeep } from "#edge/pause.ts";
import { refuse } from "#edge/validate.ts";

/** One instant for all of them; more would hold up whoever waits for the first. */
const MAX_CHILDREN = 256;

/** Where copies cannot go, all goes into a layer: nothing of a sandbox is kept from its own children. */
const EVERYTHING: PackOptions = { exclude: [], keep: ["credentials", "history"], consistent: true };

/** What is asked of a fork. */
export interface ForkWish extends ForkHow {
  readonly children: readonly ForkChild[];
}

/** What a fork needs of its edge. */
export interface ForkHost {
  readonly edge: EdgeId;
  /** Puts layers where other nodes find them; undefined: there is no such place. */
  readonly share: ((layers: readonly LayerDigest[], signal: AbortSignal) => Promise<void>) | undefined;
  known(id: SandboxId): SandboxDriver | undefined;
  /** Begins a bring-up, which waits for what is copied. Rejects when the node has no room. */
  begin(spec: SandboxSpec, origin: Origin | undefined): Promise<SandboxDriver>;
}

//   intent of each child ─► one instant of the parent ─► a copy for each ─► each comes up by itself
//                                    └─► layers of it, for children elsewhere ─► the store that nodes share
//
// Where processes are copied, too, the records of those commands go along: before the instant, what the edge has of their outputs; from there
// on, what each child's own agent has kept, which forgets nothing in between.

/** See `Node.fork`. The parent does not count as idle meanwhile; its removal ends what is not copied yet. */
export async function forkSandbox({ driver, signal }: CommandCall, wish: ForkWish, host: ForkHost): Promise<Forked> {
  const { children, snapshot, paused = false, memory = true } = wish;
  validateWish({ children, snapshot, paused, memory }, host.edge);
  using _busy = driver.busy();
  const { backend } = driver.beside("fork");
  if (!(driver.state === "paused" && backend.copying?.copiesSaved === true)) await driver.awake("fork", signal);
  const { copying } = backend;
  if (copying === undefined) {
    throw new SandboxError("FailedPrecondition", `sandboxes of the ${backend.kind} backend cannot be forked`, {
      hint: "create others, and copy files into them",
    });
  }
  if (paused && (backend.pausing?.keep === undefined || !copying.processes)) throw cannotKeep(backend.kind);
  const parent = driver.info.spec;
  const specs = children.map((child) => childSpec(parent, child));
  const parts = { packing: backend.packing, copying, driver, parent, host, snapshot, paused, memory };
  await using fork = new Fork(parts, AbortSignal.any([signal, driver.leaving]));
  await fork.begin(specs.filter(({ id }) => host.known(id) === undefined));
  const [made, ...outcomes] = await Promise.all([
    fork.snapshot(signal),
    ...specs.map((spec) => fork.outcome(spec, signal)),
  ]);
  return { frozenMs: fork.frozenMs, outcomes, ...(made === undefined ? {} : { snapshot: made }) };
}

interface ForkParts {
  readonly packing: Packing | undefined;
  readonly copying: Copying;
  readonly driver: SandboxDriver;
  readonly parent: SandboxSpec;
  readonly host: ForkHost;
  readonly snapshot: ForkSnapshot;
  readonly paused: boolean;
  readonly memory: boolean;
}

class Fork implements AsyncDisposable {
  frozenMs = 0;
  readonly #parts: ForkParts;
  readonly #signal: AbortSignal;
  readonly #refused = new Map<SandboxId, unknown>();
  readonly #carried = new AsyncDisposableStack();
  #layers: Promise<readonly LayerDigest[]> | undefined;

  constructor(parts: ForkParts, signal: AbortSignal) {
    this.#parts = parts;
    this.#signal = signal;
  }

  /** Rejects when there is nothing to begin with; children that were begun hear of it and go. */
  async begin(specs: readonly SandboxSpec[]): Promise<void> {
    const { packing, copying, parent, snapshot } = this.#parts;
    if (specs.length === 0 && (snapshot !== "always" || !this.#canShare())) return;
    if (copying.copies || packing === undefined) return await this.#beginWithCopies(specs);
    const packed = await packing.pack(parent, EVERYTHING, this.#signal);
    this.frozenMs = packed.frozenMs;
    for (const spec of specs) await this.#beginOne({ ...spec, layers: packed.layers }, undefined);
    if (this.#needsLayers) this.#keepLayers(Promise.resolve(packed));
  }

  async #beginWithCopies(specs: readonly SandboxSpec[]): Promise<void> {
    const { copying, driver, parent, paused, memory } = this.#parts;
    const copied = Promise.withResolvers<Carried | undefined>();
    // Whether anybody waits for it is not this object's concern.
    copied.promise.catch(() => undefined);
    const origin = { copied: copied.promise, content: memory ? "all" : "files", paused } as const;
    for (const spec of specs) await this.#beginOne(spec, origin);
    const begun = specs.map(({ id }) => id).filter((id) => !this.#refused.has(id));
    const pack = this.#needsLayers && this.#canShare() ? EVERYTHING : undefined;
    if (begun.length === 0 && pack === undefined) return;
    try {
      const carrying = copying.processes && memory ? this.#carried.use(driver.commands.carry()) : undefined;
      const copy = () => copying.copy(parent, { to: begun, pack }, this.#signal);
      // What is saved of one that is paused is another thing when it goes on.
      const { frozenMs, packed } = await (driver.state === "paused" ? driver.asItIs(copy) : copy());
      if (packed !== undefined) this.#keepLayers(packed);
      carrying?.copied();
      this.frozenMs = frozenMs;
      copied.resolve(carrying?.carried);
    } catch (error) {
      copied.reject(error);
      throw error;
    }
  }

  get #needsLayers(): boolean {
    const { snapshot } = this.#parts;
    if (snapshot !== "if-full") return snapshot === "always";
    return [...this.#refused.values()].some((error) => asSandboxError(error).kind === "NodeFull");
  }

  /** False: the snapshot has failed before it is begun, and nobody is held still for it. */
  #canShare(): boolean {
    const { copying, host, driver } = this.#parts;
    if (copying.packs && host.share !== undefined) return true;
    const error =
      host.share === undefined
        ? new SandboxError("FailedPrecondition", `node ${host.edge} shares no store with others`, {
            hint: "start all nodes with the same --store",
          })
        : new SandboxError(
            "FailedPrecondition",
            `sandboxes of the ${driver.spec.backend} backend are forked on their own node only`,
          );
    this.#setLayers(Promise.reject(error));
    return false;
  }

  #keepLayers(packed: Promise<PackedDiff>): void {
    if (this.#canShare()) this.#setLayers(packed.then(({ layers }) => this.#shared(layers)));
  }

  #setLayers(layers: Promise<readonly LayerDigest[]>): void {
    // It may be asked for after it has failed, or never.
    layers.catch(() => undefined);
    this.#layers = layers;
  }

  async #shared(layers: readonly LayerDigest[]): Promise<readonly LayerDigest[]> {
    await this.#parts.host.share?.(layers, this.#signal);
    return layers;
  }

  /** What became of the snapshot; undefined when there was no need of one. */
  async snapshot(signal: AbortSignal): Promise<Forked["snapshot"]> {
    try {
      const layers = await this.#layers;
      return layers && { layers };
    } catch (error) {
      signal.throwIfAborted();
      return { error: toWire(error) };
    }
  }

  async #beginOne(spec: SandboxSpec, origin: Origin | undefined): Promise<void> {
    try {
      await this.#parts.host.begin(spec, origin);
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

function validateWish({ children, snapshot, paused, memory }: Required<ForkWish>, edge: EdgeId): void {
  if (typeof paused !== "boolean" || typeof memory !== "boolean") refuse("paused, memory", "must be true or false");
  if (paused && !memory) refuse("paused", "needs memory: what begins with files alone begins when it is created");
  if (!FORK_SNAPSHOTS.includes(snapshot)) refuse("snapshot", `must be one of ${FORK_SNAPSHOTS.join(", ")}`);
  const least = snapshot === "always" ? 0 : 1;
  if (!Array.isArray(children) || children.length < least || children.length > MAX_CHILDREN) {
    refuse("children", `must be ${least} to ${MAX_CHILDREN}`);
  }
  for (const { id, labels } of children) {
    if (edgeOf(parseSandboxId(String(id))) !== edge) refuse("id", `names another edge than ${edge}`);
    if (typeof labels !== "object" || labels === null) refuse("labels", "must be names and values");
  }
  if (new Set(children.map(({ id }) => id)).size < children.length) refuse("id", "is given twice");
}
