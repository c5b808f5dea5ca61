import type { LayerDigest } from "#core/sandbox.ts";
import { SHARED_PROJECT } from "../catalogue.ts";
import { type BlobDigest, isBlobDigest, jsonObject, parseLayerDigest } from "../digest.ts";
import { damagedLayer, MAX_MANIFEST_BYTES, parseManifest } from "../manifest.ts";
import { artifactKey, artifactThing, blobThing, layerKey, layerThing, type Thing, thingOf } from "./layout.ts";
import { damagedObject, type ObjectStore, readIfThere } from "./object-store.ts";
import { readArtifact, readName } from "./shared-records.ts";

/** A node that has not said for so long that it is there is gone: its pins do not count. */
const GONE_MS = 30 * 24 * 60 * 60_000;
const MAX_PIN_BYTES = 2 ** 20;

/** What needs are found with. */
export interface NeedOptions {
  readonly objects: ObjectStore;
  /** By the clock of the store. */
  readonly nowMs: number;
  /** Of layers that were looked at before: manifests never change. */
  readonly manifests: Map<LayerDigest, readonly BlobDigest[]>;
  readonly signal: AbortSignal;
}

interface Wanted {
  readonly project: string;
  readonly digest: string;
  /** The key of the tag that means it; undefined for what was only a part in making another one. */
  readonly nameKey: string | undefined;
}

/**
 * What tags and nodes need: records of what is tagged and what that was made of, layers of those and pinned ones, their blobs. Rejects with
 * `Internal` when something that is needed is damaged or missing: what it needs itself is not known then.
 */
export async function neededThings(options: NeedOptions): Promise<ReadonlySet<Thing>> {
  const { objects, signal } = options;
  const pins = await livePins(options);
  const needed = new Set<Thing>([...pins.keys()].filter((thing) => !thing.startsWith("blobs/")));
  const layers = new Set<LayerDigest>();
  for await (const { layers: own, thing } of neededArtifacts(options)) {
    needed.add(thing);
    for (const layer of own) layers.add(layer);
  }
  for (const thing of pins.keys()) {
    if (thing.startsWith("layers/")) layers.add(parseLayerDigest(`sha256:${thing.slice("layers/".length)}`));
  }
  for (const layer of layers) {
    needed.add(layerThing(layer));
    const keys = pins.get(layerThing(layer)) ?? [];
    const blobs = (await blobsOf(layer, options)) ?? (await blobsOfPins(objects, keys, signal));
    if (blobs === undefined && keys.length === 0) throw damagedLayer(layer, "manifest");
    for (const blob of blobs ?? []) needed.add(blobThing(blob));
  }
  return needed;
}

/** Keys of the pins of nodes that are there, by what they pin. */
async function livePins({ objects, nowMs, signal }: NeedOptions): Promise<ReadonlyMap<Thing, readonly string[]>> {
  const gone = new Set<string>();
  const pins = new Map<Thing, string[]>();
  const found: { readonly node: string; readonly key: string; readonly thing: Thing }[] = [];
  for await (const { key, modifiedAtMs } of objects.list("pins/", signal)) {
    const [, node = "", ...rest] = key.split("/");
    const thing = thingOf(rest.join("/"));
    if (thing !== undefined) found.push({ node, key, thing });
    else if (nowMs - modifiedAtMs > GONE_MS) gone.add(node);
  }
  for (const { node, key, thing } of found) {
    if (!gone.has(node)) pins.set(thing, [...(pins.get(thing) ?? []), key]);
  }
  return pins;
}

async function* neededArtifacts({ objects, signal }: NeedOptions) {
  const waiting: Wanted[] = [];
  for await (const { key } of objects.list("names/", signal)) {
    // It may have been taken away since.
    const meaning = await readName(objects, key, signal);
    if (meaning !== undefined) waiting.push({ project: key.split("/")[1] ?? "", digest: meaning.digest, nameKey: key });
  }
  const seen = new Set<Thing>();
  for (const wanted of waiting) {
    const thing = artifactThing(wanted.project, wanted.digest);
    if (seen.has(thing)) continue;
    const record = await readArtifact(objects, wanted.project, wanted.digest, signal);
    if (record === undefined) {
      await checkMissing(objects, wanted, signal);
      continue;
    }
    seen.add(thing);
    yield { thing, layers: record.layers };
    for (const digest of record.parents) {
      for (const project of new Set([wanted.project, SHARED_PROJECT]))
        waiting.push({ project, digest, nameKey: undefined });
    }
  }
}

/** What an artifact was made of need not have been shared; what a tag means must be there as long as it means that. */
async function checkMissing(
  objects: ObjectStore,
  { project, digest, nameKey }: Wanted,
  signal: AbortSignal,
): Promise<void> {
  if (nameKey === undefined) return;
  const meaning = await readName(objects, nameKey, signal);
  if (meaning?.digest === digest)
    throw damagedObject(artifactKey(project, digest), "it is missing, and a name means it");
}

/** `undefined` for a layer that is not in the store, or not yet. */
async function blobsOf(layer: LayerDigest, { objects, manifests, signal }: NeedOptions) {
  const known = manifests.get(layer);
  if (known !== undefined) return known;
  const text = await readIfThere(objects, layerKey(layer, "manifest"), MAX_MANIFEST_BYTES, signal);
  if (text === undefined) return undefined;
  const blobs = parseManifest(text, layer).blobs.map(({ digest }) => digest);
  manifests.set(layer, blobs);
  return blobs;
}

/** What nodes say of a layer that they are about to push; `undefined` when none says anything. */
async function blobsOfPins(objects: ObjectStore, keys: readonly string[], signal: AbortSignal) {
  const named: BlobDigest[] = [];
  for (const key of keys) {
    const text = await readIfThere(objects, key, MAX_PIN_BYTES, signal);
    const blobs = text === undefined ? undefined : jsonObject(text)?.blobs;
    if (Array.isArray(blobs)) named.push(...blobs.filter(isBlobDigest));
  }
  return named.length === 0 ? undefined : named;
}
