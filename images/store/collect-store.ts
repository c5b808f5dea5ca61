import { randomBytes } from "node:crypto";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { BLOB_FILES } from "../blobs/descriptor.ts";
import { LAYER_FILES } from "../manifest.ts";
import { chosenKey, type Thing, thingOf } from "./layout.ts";
import { type NeedOptions, neededThings } from "./needed.ts";
import type { ObjectStore } from "./object-store.ts";
import { CHOSEN_MS, wait } from "./pins.ts";
import { textContent } from "./push.ts";

/** How a store is collected. */
export interface CollectStoreOptions {
  readonly objects: ObjectStore;
  readonly clock: Clock;
  /** What was put, or put again, within so long stays. */
  readonly graceMs: number;
  readonly signal: AbortSignal;
  /** Waits until others see what was put. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Only tell what would go. */
  readonly dryRun?: boolean;
}

/** What a collection removed, or would remove. */
export interface StoreCollection {
  readonly artifacts: number;
  readonly layers: number;
  readonly blobs: number;
  readonly bytes: number;
}

/** Chosen at a time; what is beyond waits for the next collection. */
const MOST_CHOSEN = 10_000;
/** Well before others take what is chosen for forgotten (`CHOSEN_MS`), a call that is slow included. */
const REMOVING_MS = 5 * 60_000;
/** For what must be said at the end. */
const LAST_MS = 60_000;
/** Looked for last, put last, removed first: what has it is whole. */
const FIRST_GONE: readonly string[] = [LAYER_FILES.manifest, BLOB_FILES.descriptor];

interface Found {
  keys: string[];
  bytes: number;
  newestMs: number;
}

/**
 * Removes what no tag and no node needs any more, while others push, pull and collect: see `StorePins` for why that is safe. One that dies
 * leaves things without their beginning, which the next one removes. Rejects with `Internal` when something needed is damaged.
 */
export async function collectStore(options: CollectStoreOptions): Promise<StoreCollection> {
  const { objects, clock, graceMs, pause = wait, signal } = options;
  const collection = randomBytes(8).toString("hex");
  const nowMs = await storeNow(objects, collection, signal);
  const needs: NeedOptions = { objects, nowMs, manifests: new Map(), signal };
  await forgetOldChoices(objects, nowMs, signal);
  const there = await listThings(objects, signal);
  const needed = await neededThings(needs);
  const chosen = [...there]
    .filter(([thing, { newestMs }]) => !needed.has(thing) && newestMs < nowMs - graceMs)
    .slice(0, MOST_CHOSEN);
  if (options.dryRun) return sumOf(chosen);
  const settlingMs = await objects.settlingMs(signal);
  const endMs = clock.now() + settlingMs + REMOVING_MS;
  try {
    for (const [thing] of chosen) await objects.put(chosenKey(thing, collection), textContent("{}"), signal);
    if (chosen.length > 0 && settlingMs > 0) await pause(settlingMs, signal);
    // Only now: who pins later sees what is chosen, and waits.
    const stillNeeded = chosen.length === 0 ? needed : await neededThings(needs);
    const removed: (typeof chosen)[number][] = [];
    for (const one of chosen) {
      const [thing, { keys }] = one;
      if (stillNeeded.has(thing)) continue;
      if (clock.now() > endMs) break;
      for (const key of keys.sort(goesFirst)) await objects.remove(key, signal);
      removed.push(one);
    }
    return sumOf(removed);
  } finally {
    // Whoever waits for these goes on sooner, also when this was given up; else they are forgotten after a while.
    const last = AbortSignal.timeout(LAST_MS);
    for (const [thing] of chosen) await objects.remove(chosenKey(thing, collection), last).catch(() => undefined);
  }
}

function sumOf(things: readonly (readonly [Thing, Found])[]): StoreCollection {
  const sum = { artifacts: 0, layers: 0, blobs: 0, bytes: 0 };
  for (const [thing, { bytes }] of things) {
    sum[kindOf(thing)] += 1;
    sum.bytes += bytes;
  }
  return sum;
}

/** Of collections that died. */
async function forgetOldChoices(objects: ObjectStore, nowMs: number, signal: AbortSignal): Promise<void> {
  for await (const { key, modifiedAtMs } of objects.list("chosen/", signal)) {
    if (nowMs - modifiedAtMs > CHOSEN_MS) await objects.remove(key, signal);
  }
}

/** Everything that can be removed. */
async function listThings(objects: ObjectStore, signal: AbortSignal): Promise<ReadonlyMap<Thing, Found>> {
  const there = new Map<Thing, Found>();
  for (const prefix of ["artifacts/", "layers/", "blobs/"]) {
    for await (const { key, sizeBytes, modifiedAtMs } of objects.list(prefix, signal)) {
      const thing = thingOf(key);
      if (thing === undefined) continue;
      const found = there.get(thing) ?? { keys: [], bytes: 0, newestMs: 0 };
      found.keys.push(key);
      found.bytes += sizeBytes;
      found.newestMs = Math.max(found.newestMs, modifiedAtMs);
      there.set(thing, found);
    }
  }
  return there;
}

function goesFirst(a: string, b: string): number {
  const rank = (key: string) => (FIRST_GONE.some((file) => key.endsWith(`/${file}`)) ? 0 : 1);
  return rank(a) - rank(b);
}

function kindOf(thing: Thing): "artifacts" | "layers" | "blobs" {
  if (thing.startsWith("layers/")) return "layers";
  return thing.startsWith("blobs/") ? "blobs" : "artifacts";
}

/** What time it is where objects get theirs. */
async function storeNow(objects: ObjectStore, collection: string, signal: AbortSignal): Promise<number> {
  const key = `collections/${collection}`;
  await objects.put(key, textContent("{}"), signal);
  const found = await objects.head(key, signal);
  await objects.remove(key, signal);
  if (found === undefined) throw new SandboxError("Unavailable", `${objects.name} lost what was just put there`);
  return found.modifiedAtMs;
}
