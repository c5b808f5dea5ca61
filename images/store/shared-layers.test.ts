import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import type { LayerDigest } from "#core/sandbox.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import { type BlobDigest, hexOf } from "../digest.ts";
import { type LayerStore, openLayerStore } from "../store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { blobKey, layerKey } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";
import { packedMetadataKey } from "./packed-metadata.ts";
import { STORES } from "./test-support/rigs.ts";
import { sharedLayers } from "./test-support/sharing.ts";

const live = () => AbortSignal.timeout(120_000);
const SIZE_BYTES = 3 * 2 ** 20;

async function layerOf(store: LayerStore, body: Buffer = someBytes()): Promise<LayerDigest> {
  const { layers } = await importBytes(store, archive({ path: "file", body }));
  const [digest] = layers;
  assert.ok(digest !== undefined);
  return digest;
}

async function keysOf(objects: ObjectStore): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of objects.list("", live())) keys.push(key);
  return keys.sort();
}

/** What holds the data of a blob: plain in a directory, in frames elsewhere. */
async function dataKey(objects: ObjectStore, digest: BlobDigest): Promise<string> {
  const keys = await Array.fromAsync(objects.list(`blobs/${hexOf(digest)}/`, live()), ({ key }) => key);
  const found = keys.filter((key) => /\/(?:data|frames-[0-9a-f]{64})$/.test(key));
  assert.equal(found.length, 1, keys.join(" "));
  return found[0] ?? "";
}

/** The same for the metadata of a layer. */
function metadataKey(objects: ObjectStore, digest: LayerDigest): string {
  const plain = layerKey(digest, "metadata");
  return objects.path(plain) === undefined ? packedMetadataKey(digest) : plain;
}

/** Half of it noise, and half of it nothing that is not like what is before. */
function someBytes(): Buffer {
  return Buffer.concat([randomBytes(SIZE_BYTES / 2), Buffer.alloc(SIZE_BYTES / 2, randomBytes(1_000))]);
}

async function onlyBlob(store: LayerStore, digest: LayerDigest) {
  const [blob] = (await store.manifest(digest)).blobs;
  assert.ok(blob !== undefined);
  return blob.digest;
}

function flip(path: string): void {
  const bytes = readFileSync(path);
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
  writeFileSync(path, bytes);
}

for (const [name, makeStore] of Object.entries(STORES)) {
  describe(`layers that nodes share through ${name}`, { concurrency: 2 }, () => {
    test("come to another node as they were, once, and are not sent twice", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      using b = await temporaryStore();
      const digest = await layerOf(a.store);
      const from = sharedLayers(a.store, shared.objects);
      await from.push([digest], live());
      const key = await dataKey(shared.objects, await onlyBlob(a.store, digest));
      const before = await shared.objects.head(key, live());
      assert.ok(before !== undefined);
      await from.push([digest], live());
      assert.deepEqual(await shared.objects.head(key, live()), before);
      const to = sharedLayers(b.store, shared.objects);
      await Promise.all([to.provide([digest], live()), to.provide([digest, digest], live())]);
      await b.store.verify(digest);
      assert.deepEqual(readdirSync(join(b.store.dir, "tmp")), []);
    });

    test("are pushed by many nodes at once", async () => {
      await using shared = await makeStore();
      const nodes = await Promise.all([temporaryStore(), temporaryStore(), temporaryStore()]);
      const body = someBytes();
      const digests = await Promise.all(nodes.map(({ store }) => layerOf(store, body)));
      assert.equal(new Set(digests).size, 1);
      await Promise.all(nodes.map(({ store }) => sharedLayers(store, shared.objects).push(digests, live())));
      using other = await temporaryStore();
      await sharedLayers(other.store, shared.objects).provide(digests, live());
      for (const digest of digests) await other.store.verify(digest);
      for (const node of nodes) node[Symbol.dispose]();
    });

    test("are whole in the store or not there, wherever a push broke off, and a later push completes them", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      const digest = await layerOf(a.store);
      const { objects } = shared;
      let deaths = 0;
      // Each try gets one step further than the one before.
      for (let isDone = false; !isDone; ) {
        let left = deaths;
        const put: ObjectStore["put"] = async (key, content, signal) => {
          if (left-- === 0) throw new Error("the node died");
          await objects.put(key, content, signal);
        };
        const dying = new Proxy(objects, {
          get: (_target, property) => (property === "put" ? put : Reflect.get(objects, property).bind(objects)),
        });
        isDone = await sharedLayers(a.store, dying)
          .push([digest], live())
          .then(
            () => true,
            (error: Error) => !/the node died/.test(error.message),
          );
        assert.equal((await objects.head(layerKey(digest, "manifest"), live())) !== undefined, isDone);
        deaths += 1;
      }
      assert.ok(deaths > 3);
      using b = await temporaryStore();
      await sharedLayers(b.store, objects).provide([digest], live());
      await b.store.verify(digest);
    });

    test("that were damaged in the store are refused by the part that is, and leave nothing", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      const digest = await layerOf(a.store);
      const blob = await onlyBlob(a.store, digest);
      const push = () => sharedLayers(a.store, shared.objects).push([digest], live());
      await push();
      const parts = [
        [layerKey(digest, "manifest"), "manifest"],
        [metadataKey(shared.objects, digest), "metadata"],
        [blobKey(blob, "descriptor"), "descriptor"],
        [await dataKey(shared.objects, blob), "data"],
      ] as const;
      for (const [key, part] of parts) {
        const whole = readFileSync(shared.file(key));
        using b = await temporaryStore();
        const pull = () => sharedLayers(b.store, shared.objects).provide([digest], live());
        flip(shared.file(key));
        await assert.rejects(pull(), (error: unknown) => {
          assert.ok(error instanceof Error && "kind" in error && "details" in error);
          assert.equal(error.kind, "Internal");
          assert.equal(Reflect.get(Object(error.details), "part"), part);
          return true;
        });
        truncateSync(shared.file(key), 10);
        await assert.rejects(pull(), { kind: "Internal" });
        assert.deepEqual(readdirSync(join(b.store.dir, "tmp")), []);
        assert.deepEqual(readdirSync(join(b.store.dir, "blobs")), []);
        writeFileSync(shared.file(key), whole);
        await pull();
        await b.store.verify(digest);
      }
    });

    test("that were cut short in the store are made whole by the next push", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      const digest = await layerOf(a.store);
      const from = sharedLayers(a.store, shared.objects);
      await from.push([digest], live());
      truncateSync(shared.file(await dataKey(shared.objects, await onlyBlob(a.store, digest))), 4096);
      truncateSync(shared.file(metadataKey(shared.objects, digest)), 10);
      await from.push([digest], live());
      using b = await temporaryStore();
      await sharedLayers(b.store, shared.objects).provide([digest], live());
      await b.store.verify(digest);
    });

    test("that are damaged on the node are not spread", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      const digest = await layerOf(a.store);
      flip(a.store.blobs.dataPath(await onlyBlob(a.store, digest)));
      const from = sharedLayers(a.store, shared.objects);
      await assert.rejects(from.push([digest], live()), { kind: "Internal", message: /the data of blob/ });
      assert.deepEqual(
        (await keysOf(shared.objects)).filter((key) => !key.startsWith("pins/")),
        [],
      );
    });

    test("that nobody has are NotFound; with the store down they are Unavailable, and come when it is back", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      using b = await temporaryStore();
      const digest = await layerOf(a.store);
      const to = sharedLayers(b.store, shared.objects);
      await assert.rejects(to.provide([digest], live()), { kind: "NotFound" });
      await sharedLayers(a.store, shared.objects).push([digest], live());
      shared.breakDown(true);
      await assert.rejects(to.provide([digest], live()), { kind: "Unavailable" });
      shared.breakDown(false);
      await to.provide([digest], live());
      shared.breakDown(true);
      await to.provide([digest], live());
    });

    test("leave nothing on a node whose disk is full", async () => {
      await using shared = await makeStore();
      using a = await temporaryStore();
      const digest = await layerOf(a.store);
      await sharedLayers(a.store, shared.objects).push([digest], live());
      using disk = temporaryDirectory();
      mount("tmpfs", disk.path, "tmpfs", 0, "size=2m");
      try {
        using store = await openLayerStore(join(disk.path, "store"));
        await assert.rejects(sharedLayers(store, shared.objects).provide([digest], live()), {
          kind: "StorageFull",
        });
        assert.deepEqual(readdirSync(join(store.dir, "blobs")), []);
        assert.deepEqual(readdirSync(join(store.dir, "tmp")), []);
      } finally {
        unmount(disk.path);
      }
    });
  });
}

test("a node that is killed while it pulls leaves nothing that the next start does not sweep", async () => {
  using directory = temporaryDirectory();
  using a = await temporaryStore();
  const digest = await layerOf(a.store);
  const shared = join(directory.path, "shared");
  const script = `
    import { mkdirSync } from "node:fs";
    import { openLayerStore } from "${import.meta.dirname}/../store.ts";
    import { directoryStore } from "${import.meta.dirname}/directory.ts";
    import { sharedLayers } from "${import.meta.dirname}/test-support/sharing.ts";
    const [from, to, shared, digest] = process.argv.slice(1);
    mkdirSync(shared, { recursive: true });
    const objects = directoryStore(shared);
    await sharedLayers(await openLayerStore(from), objects).push([digest], AbortSignal.timeout(60_000));
    const bound = (name) => ({ value: objects[name].bind(objects) });
    const calls = Object.fromEntries(["put", "head", "list", "remove", "path"].map((name) => [name, bound(name)]));
    const dying = Object.create(objects, { ...calls, get: { value: async function* (...words) {
      for await (const piece of objects.get(...words)) {
        yield piece;
        if (words[0].endsWith("/data")) process.kill(process.pid, "SIGKILL");
      }
    } } });
    await sharedLayers(await openLayerStore(to), dying).provide([digest], AbortSignal.timeout(60_000));`;
  const to = join(directory.path, "to");
  const words = ["--input-type=module", "-e", script, a.store.dir, to, shared, digest];
  await assert.rejects(promisify(execFile)(process.execPath, words), { signal: "SIGKILL" });
  using store = await openLayerStore(to);
  assert.deepEqual(readdirSync(join(to, "tmp")), []);
  assert.deepEqual(await store.blobs.list(), []);
});
