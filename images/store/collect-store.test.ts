import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { ManualClock, systemClock } from "#core/clock.ts";
import type { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { parseDescriptor } from "../blobs/descriptor.ts";
import { type ArtifactRecord, artifactDigest, type NewArtifact } from "../catalogue.ts";
import { sha256Hex } from "../digest.ts";
import { parseManifest } from "../manifest.ts";
import type { LayerStore } from "../store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { collectStore } from "./collect-store.ts";
import { directoryStore } from "./directory.ts";
import { blobKey, layerKey } from "./layout.ts";
import { type ObjectStore, readObject } from "./object-store.ts";
import { CHOSEN_MS, StorePins } from "./pins.ts";
import { StoreCatalogue } from "./shared-catalogue.ts";
import { SharedLayers } from "./shared-layers.ts";
import { findRecord } from "./shared-records.ts";

const live = () => AbortSignal.timeout(60_000);
const NONE = { artifacts: 0, layers: 0, blobs: 0, bytes: 0 };

/** A node: its layers, what it shares, and what it pins. */
async function nodeWith(objects: ObjectStore, name: string, store: LayerStore, pause?: () => Promise<void>) {
  const clock = new ManualClock(0);
  const pins = new StorePins({ objects, node: name, clock, ...(pause && { pause }) });
  const layers = new SharedLayers(store, objects, pins);
  const catalogue = new StoreCatalogue({
    objects,
    layers,
    pins,
    lazy: undefined,
    graceMs: 0,
    clock,
    onFailure: () => undefined,
  });
  const collect = () => collectStore({ objects, clock: systemClock, graceMs: -10_000, signal: live() });
  return {
    ...{ layers, catalogue, collect, store },
    /** As time passes and the node needs these layers and no other ones. */
    async keepOnly(keep: readonly LayerDigest[]) {
      clock.advance(2 * 60 * 60_000);
      await pins.release(new Set(keep), live());
    },
    [Symbol.asyncDispose]: () => catalogue[Symbol.asyncDispose](),
  };
}

async function artifactOf(
  store: LayerStore,
  name: string,
  text: string,
  parents: readonly string[] = [],
): Promise<ArtifactRecord> {
  const { layers } = await importBytes(store, archive({ path: "file", body: text }));
  const made = {
    kind: "workspace",
    layers,
    config: { env: {}, user: undefined, workdir: undefined },
    sizeBytes: 1,
    provenance: "a test",
    labels: {},
    parents,
  } as const satisfies NewArtifact;
  return {
    ...made,
    project: "p",
    name,
    tag: "latest",
    digest: artifactDigest(made),
    createdAtMs: 0,
    taggedAtMs: 1,
    isPublished: false,
  };
}

/** Whether all of what a name means is in the store, as its digests say. */
async function assertWhole(objects: ObjectStore, name: string): Promise<void> {
  const record = await findRecord(objects, "p", { name, tag: "latest" }, live());
  assert.ok(record !== undefined, `${name} is gone`);
  const read = async (key: string) => await readObject(objects, key, 2 ** 20, live());
  for (const layer of record.layers) {
    const { metadata, blobs } = parseManifest((await read(layerKey(layer, "manifest"))).toString(), layer);
    assert.equal(sha256Hex(await read(layerKey(layer, "metadata"))), metadata.sha256);
    for (const { digest } of blobs) {
      const { pieces } = parseDescriptor((await read(blobKey(digest, "descriptor"))).toString(), digest);
      assert.deepEqual([sha256Hex(await read(blobKey(digest, "data")))], pieces);
    }
  }
}

async function keysOf(objects: ObjectStore, prefix: string): Promise<readonly string[]> {
  return (await Array.fromAsync(objects.list(prefix, live()))).map(({ key }) => key).sort();
}

describe("collecting a store", () => {
  test("removes what no tag, no node and nothing made of it needs, and leaves all else whole", async () => {
    using root = temporaryDirectory();
    using made = await temporaryStore();
    await using objects = directoryStore(root.path);
    await using a = await nodeWith(objects, "a", made.store);
    const parent = await artifactOf(a.store, "parent", "parent");
    const child = await artifactOf(a.store, "child", "child", [parent.digest]);
    const old = await artifactOf(a.store, "old", "old");
    for (const record of [parent, child, old]) await a.catalogue.share(record, live());
    for (const name of ["parent", "old"]) await a.catalogue.withdraw("p", { name, tag: "latest" });
    const first = await a.collect();
    assert.deepEqual([first.artifacts, first.layers, first.blobs], [1, 0, 0], "the node still needs its layers");
    await a.keepOnly([]);
    const removed = await a.collect();
    assert.deepEqual({ ...removed, bytes: removed.bytes > 0 }, { artifacts: 0, layers: 1, blobs: 1, bytes: true });
    await assertWhole(objects, "child");
    assert.ok((await keysOf(objects, "layers/")).includes(layerKey(parent.layers[0] ?? assert.fail(), "manifest")));
    for (const prefix of ["chosen/", "collections/"]) assert.deepEqual(await keysOf(objects, prefix), []);
    // A node that had it from elsewhere puts it there again, whole.
    await a.catalogue.share(old, live());
    await assertWhole(objects, "old");
  });

  test("leaves what is young, and what another node pinned", async () => {
    using root = temporaryDirectory();
    using made = await temporaryStore();
    await using objects = directoryStore(root.path);
    await using a = await nodeWith(objects, "a", made.store);
    using empty = await temporaryStore();
    await using b = await nodeWith(objects, "b", empty.store);
    const record = await artifactOf(a.store, "work", "text");
    await a.catalogue.share(record, live());
    await b.layers.provideMetadata(record.layers, live());
    await a.catalogue.withdraw("p", record);
    await a.keepOnly([]);
    const kept = await a.collect();
    assert.deepEqual([kept.artifacts, kept.layers, kept.blobs], [1, 0, 0]);
    await b.layers.provide(record.layers, live());
    await b.store.verify(record.layers[0] ?? assert.fail(), live());
    await b.keepOnly([]);
    assert.deepEqual(await collectStore({ objects, clock: systemClock, graceMs: 60_000, signal: live() }), NONE);
    const before = await keysOf(objects, "");
    const told = await collectStore({ objects, clock: systemClock, graceMs: -10_000, signal: live(), dryRun: true });
    assert.deepEqual(await keysOf(objects, ""), before);
    const removed = await a.collect();
    assert.deepEqual([removed.layers, removed], [1, told]);
    assert.deepEqual(readdirSync(root.path).sort(), [".incoming", "dsec-store.json", "pins"]);
  });

  test("is refused while something that a tag means is damaged, and removes nothing then", async () => {
    using root = temporaryDirectory();
    using made = await temporaryStore();
    await using objects = directoryStore(root.path);
    await using a = await nodeWith(objects, "a", made.store);
    const [work, old] = [await artifactOf(a.store, "work", "1"), await artifactOf(a.store, "old", "2")];
    for (const record of [work, old]) await a.catalogue.share(record, live());
    await a.catalogue.withdraw("p", old);
    await a.keepOnly([]);
    await objects.remove(layerKey(work.layers[0] ?? assert.fail(), "manifest"), live());
    await assert.rejects(a.collect(), { kind: "Internal", details: { layer: work.layers[0], part: "manifest" } });
    assert.equal((await keysOf(objects, "artifacts/")).length, 2);
    await a.catalogue.share(work, live());
    assert.equal((await a.collect()).artifacts, 1);
    await assertWhole(objects, "work");
  });

  test("that dies at any call leaves what the next one finishes, and nothing that is needed is lost", async () => {
    using made = await temporaryStore();
    const [work, old] = [await artifactOf(made.store, "work", "1"), await artifactOf(made.store, "old", "2")];
    for (let calls = 1, isDone = false; !isDone; calls++) {
      using root = memoryDirectory();
      await using objects = directoryStore(root.path);
      await using a = await nodeWith(objects, "a", made.store);
      for (const record of [work, old]) await a.catalogue.share(record, live());
      await a.catalogue.withdraw("p", old);
      await a.keepOnly([...work.layers]);
      const dying = dyingAfter(objects, calls);
      isDone = await collectStore({ objects: dying, clock: systemClock, graceMs: -10_000, signal: live() }).then(
        () => true,
        (error: Error) => !/the node died/.test(error.message),
      );
      await assertWhole(objects, "work");
      await a.collect();
      for (const prefix of ["artifacts/", "layers/"])
        assert.ok((await keysOf(objects, prefix)).length <= 2, `${calls}`);
      await assertWhole(objects, "work");
      // What the dead one had chosen holds up pushes for a while only.
      await age(root.path, objects, "chosen/", CHOSEN_MS + 1_000);
      await a.catalogue.share(old, live());
      await assertWhole(objects, "old");
    }
  });

  test("looks again at what it has chosen: a push that came in between is whole", async () => {
    using root = temporaryDirectory();
    using one = await temporaryStore();
    using two = await temporaryStore();
    await using objects = directoryStore(root.path);
    await using a = await nodeWith(objects, "a", one.store);
    await using b = await nodeWith(objects, "b", two.store);
    const [old, again] = [await artifactOf(one.store, "old", "1"), await artifactOf(two.store, "again", "1")];
    await a.catalogue.share(old, live());
    await a.catalogue.withdraw("p", old);
    await a.keepOnly([]);
    let pushed = 0;
    const between = wrapped(objects, async (name) => {
      if (name.startsWith("put chosen/") && pushed++ === 0) await b.catalogue.share(again, live());
    });
    assert.deepEqual(
      await collectStore({ objects: between, clock: systemClock, graceMs: -10_000, signal: live() }),
      NONE,
    );
    assert.ok(pushed > 0);
    await assertWhole(objects, "again");
  });

  test("loses nothing that is pushed, pulled, tagged and taken away meanwhile, in whatever order the calls come", async () => {
    using one = await temporaryStore();
    using two = await temporaryStore();
    using three = await temporaryStore();
    const first = await artifactOf(one.store, "first", "1");
    const [again, other] = [await artifactOf(two.store, "again", "1"), await artifactOf(two.store, "other", "2")];
    const property = fc.asyncProperty(fc.scheduler(), async (scheduler) => {
      using root = memoryDirectory();
      await using objects = directoryStore(root.path);
      await using a = await nodeWith(objects, "a", one.store);
      // In the store, and needed by nobody: what is pushed next is there already, and about to go.
      await a.catalogue.share(first, live());
      await a.catalogue.withdraw("p", first);
      await a.keepOnly([]);
      const slow = wrapped(objects, (name) => scheduler.schedule(Promise.resolve(), name));
      const pause = () => scheduler.schedule(Promise.resolve(), "pause");
      await using b = await nodeWith(slow, "b", two.store, pause);
      await using c = await nodeWith(slow, "c", three.store, pause);
      const collecting = { objects: slow, clock: systemClock, graceMs: -10_000, signal: live() };
      // It comes whole and stays, or it was gone before.
      const pulling = c.layers.provideMetadata(first.layers, live()).then(
        () => true,
        (error: SandboxError) => error.kind !== "NotFound" && Promise.reject(error),
      );
      const works = [
        collectStore(collecting),
        collectStore(collecting),
        b.catalogue.share(again, live()),
        b.catalogue.share(other, live()),
        pulling,
      ];
      await scheduler.waitFor(Promise.all(works));
      for (const name of ["again", "other"]) await assertWhole(objects, name);
      for (const layer of first.layers) await three.store.remove(layer);
    });
    await fc.assert(property, { numRuns: 25 });
  });
});

/** Ends like a killed process at some call of the store. */
function dyingAfter(objects: ObjectStore, calls: number): ObjectStore {
  let left = calls;
  const count = () => {
    left -= 1;
    if (left < 0) throw new Error("the node died");
  };
  return wrapped(objects, async () => count());
}

function wrapped(objects: ObjectStore, before: (name: string) => Promise<unknown>): ObjectStore {
  return {
    name: objects.name,
    async *get(key, range, signal) {
      await before(`get ${key}`);
      yield* objects.get(key, range, signal);
    },
    async put(key, content, signal) {
      await before(`put ${key}`);
      await objects.put(key, content, signal);
    },
    async head(key, signal) {
      await before(`head ${key}`);
      return await objects.head(key, signal);
    },
    async *list(prefix, signal) {
      await before(`list ${prefix}`);
      yield* objects.list(prefix, signal);
    },
    async remove(key, signal) {
      await before(`remove ${key}`);
      await objects.remove(key, signal);
    },
    path: (key) => objects.path(key),
    settlingMs: (signal) => objects.settlingMs(signal),
    probe: (signal) => objects.probe(signal),
    [Symbol.asyncDispose]: async () => undefined,
  };
}

/** As if objects had been put earlier. */
async function age(root: string, objects: ObjectStore, prefix: string, byMs: number): Promise<void> {
  const then = new Date(Date.now() - byMs);
  for (const key of await keysOf(objects, prefix)) utimesSync(join(root, key), then, then);
}

/** Waits for no disk: what is asked here is the order of calls. */
function memoryDirectory(): { readonly path: string } & Disposable {
  const path = mkdtempSync("/dev/shm/dsec-collect-");
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true }) };
}
