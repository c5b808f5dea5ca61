import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Clock } from "#core/clock.ts";
import { Turns } from "#core/concurrency/turns.ts";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import type { BlobDigest } from "../digest.ts";
import { aliveKey, artifactThing, blobThing, layerThing, pinKey, type Thing, thingOf } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";
import { textContent } from "./push.ts";

/** A collection removes nothing this long after it said what: whatever is still chosen later was left by one that died. */
export const CHOSEN_MS = 15 * 60_000;
/** Between two looks at what a collection is about to remove. */
const LOOK_MS = 1_000;
/** What was pinned a moment ago is kept, though nobody may know yet that it is needed. */
const YOUNG_MS = 60 * 60_000;

/** What the pins of a node are kept with. */
export interface PinOptions {
  readonly objects: ObjectStore;
  /** Of this node alone among all that use the store, and the same after a restart. */
  readonly node: string;
  readonly clock: Clock;
  /** Waits for a collection of another node. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

interface Held {
  /** Whether its blobs are named in the pin. */
  readonly hasBlobs: boolean;
  /** Whether no collection had chosen it after it was pinned. */
  isFree: boolean;
  /** When somebody last asked for it. */
  atMs: number;
}

/**
 * What a node needs of a store that others collect in. The rule that makes it safe without locks: whoever needs a thing pins it, then looks
 * whether a collection has chosen it; a collection chooses a thing, then looks for pins. One of the two sees the other, in whatever order
 * their calls arrive.
 */
export class StorePins {
  readonly #options: PinOptions;
  /** A pin that is put and one that is taken away must not overtake each other. */
  readonly #turns = new Turns(1);
  #held: Map<Thing, Held> | undefined;
  /** Keys of pins of records that are being published now. */
  readonly #uses = new Set<string>();
  #isAlive = false;

  constructor(options: PinOptions) {
    this.#options = options;
  }

  /**
   * Resolves when no collection removes the layer any more, nor its blobs: those of its manifest in the store, or, for one that is on its
   * way there, those that are named. It may be gone already. Costs nothing when the node has pinned it before.
   */
  async holdLayer(digest: LayerDigest, blobs: readonly BlobDigest[] | undefined, signal: AbortSignal): Promise<void> {
    const thing = layerThing(digest);
    const held = await this.#turns.run(signal, async () => {
      const known = await this.#known(signal);
      const found = known.get(thing);
      if (found !== undefined && (found.hasBlobs || blobs === undefined)) return found;
      await this.#put(pinKey(this.#options.node, thing), { version: 1, ...(blobs && { blobs }) }, signal);
      const made = { hasBlobs: blobs !== undefined, isFree: false, atMs: this.#options.clock.now() };
      known.set(thing, made);
      return made;
    });
    held.atMs = this.#options.clock.now();
    if (held.isFree) return;
    await this.#untilFree([thing, ...(blobs ?? []).map(blobThing)], signal);
    held.isFree = true;
  }

  /** Runs `work` while no collection removes the record of the artifact. */
  async withArtifact<T>(project: string, digest: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { node, objects } = this.#options;
    const thing = artifactThing(project, digest);
    const key = pinKey(node, thing, randomBytes(8).toString("hex"));
    this.#uses.add(key);
    try {
      await this.#put(key, { version: 1 }, signal);
      await this.#untilFree([thing], signal);
      return await work();
    } finally {
      this.#uses.delete(key);
      await objects.remove(key, signal).catch(() => undefined);
    }
  }

  /** Says that the node is there, and takes away pins that an earlier process left, or of layers that are not in `keep` and were not pinned just now. */
  async release(keep: ReadonlySet<LayerDigest>, signal: AbortSignal): Promise<void> {
    const kept = new Set([...keep].map(layerThing));
    this.#isAlive = false;
    await this.#turns.run(signal, () => this.#sayAlive(signal));
    const { clock, node, objects } = this.#options;
    for await (const { key } of objects.list(`pins/${node}/artifacts/`, signal)) {
      if (!this.#uses.has(key)) await objects.remove(key, signal);
    }
    const before = clock.now() - YOUNG_MS;
    const known = await this.#turns.run(signal, () => this.#known(signal));
    for (const [thing, { atMs }] of [...known]) {
      if (kept.has(thing) || atMs > before) continue;
      await this.#turns.run(signal, async () => {
        if ((known.get(thing)?.atMs ?? before) > before) return;
        known.delete(thing);
        await objects.remove(pinKey(node, thing), signal);
      });
    }
  }

  /** Pins that this node has in the store, those of an earlier process too. Uses of records end with their process. */
  async #known(signal: AbortSignal): Promise<Map<Thing, Held>> {
    if (this.#held !== undefined) return this.#held;
    const { node, objects } = this.#options;
    const prefix = `pins/${node}/`;
    const held = new Map<Thing, Held>();
    for await (const { key } of objects.list(prefix, signal)) {
      const thing = thingOf(key.slice(prefix.length));
      if (thing === undefined) continue;
      // That process may have died before it looked, and before a push the blobs are named again.
      if (thing.startsWith("layers/")) held.set(thing, { hasBlobs: false, isFree: false, atMs: 0 });
    }
    this.#held = held;
    return held;
  }

  async #put(key: string, body: object, signal: AbortSignal): Promise<void> {
    await this.#sayAlive(signal);
    await this.#options.objects.put(key, textContent(JSON.stringify(body)), signal);
  }

  /** Pins of a node that has not said so for long do not count. */
  async #sayAlive(signal: AbortSignal): Promise<void> {
    if (this.#isAlive) return;
    const { node, objects } = this.#options;
    await objects.put(aliveKey(node), textContent(JSON.stringify({ version: 1 })), signal);
    this.#isAlive = true;
  }

  /** Waits for collections that have chosen one of the things. */
  async #untilFree(things: readonly Thing[], signal: AbortSignal): Promise<void> {
    const { pause = wait } = this.#options;
    while (await this.#isChosen(things, signal)) await pause(LOOK_MS, signal);
  }

  async #isChosen(things: readonly Thing[], signal: AbortSignal): Promise<boolean> {
    const { objects } = this.#options;
    for (const thing of things) {
      for await (const { modifiedAtMs } of objects.list(`chosen/${thing}/`, signal)) {
        if ((await this.#storeNow(signal)) - modifiedAtMs < CHOSEN_MS) return true;
      }
    }
    return false;
  }

  /** What time it is where marks get theirs. */
  async #storeNow(signal: AbortSignal): Promise<number> {
    const { node, objects } = this.#options;
    this.#isAlive = false;
    await this.#sayAlive(signal);
    const found = await objects.head(aliveKey(node), signal);
    if (found === undefined) throw new SandboxError("Unavailable", `${objects.name} lost what was just put there`);
    return found.modifiedAtMs;
  }
}

/** Resolves after some time, or rejects with the signal's reason. */
export async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}
