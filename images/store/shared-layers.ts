import { allEnded } from "#core/concurrency/all-ended.ts";
import { Turns } from "#core/concurrency/turns.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { BlobDigest } from "../digest.ts";
import type { LayerStore } from "../store.ts";
import type { ObjectStore } from "./object-store.ts";
import type { StorePins } from "./pins.ts";
import { pullBlob, pullMetadata } from "./pull.ts";
import { pushLayer } from "./push.ts";

/** Blobs that come at a time: one fills a network, and a few hide each other's pauses. */
const PULLS_AT_A_TIME = 4;
/** Metadata that comes at a time: it is waited for more than it is carried. */
const SMALL_PULLS_AT_A_TIME = 8;

/** The layers of a node, as other nodes share them through a store. */
export class SharedLayers {
  readonly #layers: LayerStore;
  readonly #objects: ObjectStore;
  readonly #pins: StorePins;
  readonly #turns = new Turns(PULLS_AT_A_TIME);
  readonly #small = new Turns(SMALL_PULLS_AT_A_TIME);
  readonly #coming = new Map<BlobDigest, Promise<void>>();

  constructor(layers: LayerStore, objects: ObjectStore, pins: StorePins) {
    this.#layers = layers;
    this.#objects = objects;
    this.#pins = pins;
  }

  /** Sees that the store has these layers. Rejects as `pushLayer` does. */
  async push(digests: readonly LayerDigest[], signal: AbortSignal): Promise<void> {
    const options = { layers: this.#layers, objects: this.#objects, signal };
    for (const digest of digests) {
      const { blobs } = await this.#layers.manifest(digest);
      const named = blobs.map((blob) => blob.digest);
      await this.#pins.holdLayer(digest, named, signal);
      await pushLayer(digest, options);
    }
  }

  /** Sees that the node knows these layers: manifest and metadata, none of their data. Rejects as pulls do. */
  async provideMetadata(digests: readonly LayerDigest[], signal: AbortSignal): Promise<void> {
    await allEnded(digests.map((digest) => this.#small.run(signal, () => this.#provideMetadataOf(digest, signal))));
  }

  async #provideMetadataOf(digest: LayerDigest, signal: AbortSignal): Promise<void> {
    // First: what is pinned is not collected while it comes, nor while its data is read.
    await this.#pins.holdLayer(digest, undefined, signal);
    if (await this.#layers.has(digest)) return;
    await pullMetadata(digest, { layers: this.#layers, objects: this.#objects, signal });
  }

  /** Sees that the node has these layers with all their blobs. Rejects with `NotFound` for what the store lacks, too, and as pulls do. */
  async provide(digests: readonly LayerDigest[], signal: AbortSignal): Promise<void> {
    await this.provideMetadata(digests, signal);
    for (const digest of digests) {
      const { blobs } = await this.#layers.manifest(digest);
      const missing = blobs.filter((blob) => !this.#layers.blobs.has(blob.digest));
      await Promise.all(missing.map((blob) => this.#provideBlob(blob.digest, signal)));
    }
  }

  /** Several who want a blob wait for the same one. */
  async #provideBlob(digest: BlobDigest, signal: AbortSignal): Promise<void> {
    const coming = this.#coming.get(digest);
    if (coming !== undefined) {
      await coming.catch(() => undefined);
      // Whoever brought it may have given up.
      if (this.#layers.blobs.has(digest)) return;
    }
    const options = { layers: this.#layers, objects: this.#objects, signal };
    const pulling = this.#turns
      .run(signal, () => pullBlob(digest, options))
      .finally(() => {
        if (this.#coming.get(digest) === pulling) this.#coming.delete(digest);
      });
    this.#coming.set(digest, pulling);
    await pulling;
  }
}
