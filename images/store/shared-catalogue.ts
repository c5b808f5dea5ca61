import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { ArtifactRecord, SharedCatalogue } from "../catalogue.ts";
import type { LazyStatus } from "../lazy/lazy-node.ts";
import { type FoundBy, formatReference, type Reference } from "../reference.ts";
import { collectStore, type StoreCollection } from "./collect-store.ts";
import { nameKey } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";
import type { StorePins } from "./pins.ts";
import type { SharedLayers } from "./shared-layers.ts";
import { findRecord, putRecord } from "./shared-records.ts";

/** What sharing works with. */
export interface SharingOptions {
  readonly objects: ObjectStore;
  readonly layers: SharedLayers;
  readonly pins: StorePins;
  /** What was put into the store within so long is not collected. */
  readonly graceMs: number;
  readonly clock: Clock;
  /** Where data is fetched as it is read. */
  readonly lazy?: { readonly status: LazyStatus } | undefined;
  /** Told of each failure to publish; it is tried again. */
  onFailure(error: unknown, artifact: string): void;
}

interface Waiting {
  readonly record: ArtifactRecord;
  done(): Promise<void>;
}

const FIRST_RETRY_MS = 2_000;
const MAX_RETRY_MS = 5 * 60_000;
/** A name is looked up while somebody waits for a create. */
const FIND_MS = 60_000;

/**
 * The artifacts of a control plane in a store. What gets a tag is published behind the caller's back, one artifact after the other,
 * layers first: the tag is there when everything that it needs is.
 */
export class StoreCatalogue implements SharedCatalogue, AsyncDisposable {
  readonly #options: SharingOptions;
  readonly #closing = new AbortController();
  /** By project and reference: only what a tag means last is worth sharing. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #running: Promise<void>;
  #current: { readonly id: string; readonly leaving: AbortController; readonly ended: Promise<void> } | undefined;
  #wake = Promise.withResolvers<void>();

  constructor(options: SharingOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  /** For people. */
  get name(): string {
    return this.#options.objects.name;
  }

  /** Tags that are still to be published. */
  get waiting(): number {
    return this.#waiting.size;
  }

  get onDemand(): LazyStatus | undefined {
    return this.#options.lazy?.status;
  }

  async probe(signal: AbortSignal): Promise<void> {
    await this.#options.objects.probe(signal);
  }

  publish(record: ArtifactRecord, done: () => Promise<void>): void {
    this.#waiting.set(idOf(record.project, record), { record, done });
    this.#wake.resolve();
  }

  /** Publishes now, and waits for it. Rejects as pushes do. */
  async share(record: ArtifactRecord, signal: AbortSignal): Promise<void> {
    const { objects, layers, pins } = this.#options;
    await layers.push(record.layers, signal);
    await pins.withArtifact(record.project, record.digest, signal, () => putRecord(objects, record, signal));
  }

  /** Brings the layers of an artifact to this node. */
  async provide(record: ArtifactRecord, signal: AbortSignal): Promise<void> {
    await this.#options.layers.provide(record.layers, signal);
  }

  /** Sees that others keep in the store what this node needs, and no more. */
  async release(keep: ReadonlySet<LayerDigest>, signal: AbortSignal): Promise<void> {
    await this.#options.pins.release(keep, signal);
  }

  /** Removes from the store what no tag and no node needs. Rejects as `collectStore` does. */
  async collect({ dryRun }: { readonly dryRun: boolean }, signal: AbortSignal): Promise<StoreCollection> {
    const { objects, clock, graceMs } = this.#options;
    return await collectStore({ objects, clock, graceMs, signal, dryRun });
  }

  async withdraw(project: string, reference: Reference): Promise<void> {
    const id = idOf(project, reference);
    this.#waiting.delete(id);
    // What is being published now would come after.
    if (this.#current?.id === id) {
      this.#current.leaving.abort(new SandboxError("Cancelled", "the tag was taken away"));
      await this.#current.ended;
    }
    await this.#options.objects.remove(nameKey(project, reference), this.#patience());
  }

  async find(project: string, reference: FoundBy): Promise<ArtifactRecord | undefined> {
    return await findRecord(this.#options.objects, project, reference, this.#patience());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new SandboxError("Cancelled", "the node ends"));
    this.#wake.resolve();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    for (let failures = 0; !signal.aborted; ) {
      const [next] = this.#waiting.values();
      if (next === undefined) await this.#pause(undefined);
      else if (await this.#publishOne(next)) failures = 0;
      else await this.#pause(Math.min(FIRST_RETRY_MS * 2 ** failures++, MAX_RETRY_MS));
    }
  }

  /** True when it is done with; false when it must be tried again. Never rejects. */
  async #publishOne({ record, done }: Waiting): Promise<boolean> {
    const id = idOf(record.project, record);
    const leaving = new AbortController();
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    this.#current = { id, leaving, ended };
    const isStillWanted = () => this.#waiting.get(id)?.record === record;
    try {
      await this.share(record, AbortSignal.any([this.#closing.signal, leaving.signal]));
      await done();
      if (isStillWanted()) this.#waiting.delete(id);
      return true;
    } catch (error) {
      if (this.#closing.signal.aborted || !isStillWanted()) return true;
      this.#options.onFailure(error, id);
      // To the end of the queue: one that can never be published must not stop the others.
      this.#waiting.delete(id);
      this.#waiting.set(id, { record, done });
      return false;
    } finally {
      this.#current = undefined;
      end();
    }
  }

  /** Until something new is to be published, the node ends, or so much time has passed. */
  async #pause(delayMs: number | undefined): Promise<void> {
    using _ = delayMs === undefined ? undefined : this.#options.clock.after(delayMs, this.#wake.resolve);
    await this.#wake.promise;
    this.#wake = Promise.withResolvers<void>();
  }

  #patience(): AbortSignal {
    return AbortSignal.any([this.#closing.signal, AbortSignal.timeout(FIND_MS)]);
  }
}

function idOf(project: string, reference: Reference): string {
  return `${project}/${formatReference(reference)}`;
}
