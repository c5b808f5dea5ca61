import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { constants, zstdCompressSync } from "node:zlib";
import { systemClock } from "#core/clock.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import { type BlobDigest, hexOf, sha256Hex } from "../digest.ts";
import { type LayerStore, openLayerStore } from "../store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { collectStore } from "./collect-store.ts";
import { directoryStore } from "./directory.ts";
import { tableKey } from "./frames.ts";
import { blobKey } from "./layout.ts";
import type { ObjectStore } from "./object-store.ts";
import { packedMetadataKey } from "./packed-metadata.ts";
import { StorePins } from "./pins.ts";
import { pullBlob, pullMetadata } from "./pull.ts";
import { pushLayer } from "./push.ts";
import { SharedLayers } from "./shared-layers.ts";
import { fetched } from "./test-support/fetched.ts";

const live = () => AbortSignal.timeout(120_000);
const SIZE_BYTES = 3 * 2 ** 20;

/** A directory as a store that is fetched from, and what was put there, key by key. */
function remoteStore() {
  const directory = temporaryDirectory();
  const inner = fetched(directoryStore(directory.path));
  const put: string[] = [];
  const objects: ObjectStore = {
    ...inner,
    async put(key, content, signal) {
      put.push(key);
      await inner.put(key, content, signal);
    },
  };
  return { objects, put, dir: directory.path, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

async function layerOf(store: LayerStore): Promise<{ readonly digest: LayerDigest; readonly blob: BlobDigest }> {
  const body = Buffer.concat([randomBytes(SIZE_BYTES / 4), Buffer.alloc(SIZE_BYTES, randomBytes(1_000))]);
  const { layers } = await importBytes(store, archive({ path: "file", body }));
  const [digest] = layers;
  assert.ok(digest !== undefined);
  const [blob] = (await store.manifest(digest)).blobs;
  assert.ok(blob !== undefined);
  return { digest, blob: blob.digest };
}

async function pulled(objects: ObjectStore, digest: LayerDigest): Promise<void> {
  using node = await temporaryStore();
  const options = { layers: node.store, objects, signal: live() };
  await pullMetadata(digest, options);
  for (const { digest: blob } of (await node.store.manifest(digest)).blobs) await pullBlob(blob, options);
  await node.store.verify(digest);
  assert.deepEqual(readdirSync(join(node.store.dir, "tmp")), []);
}

const filesOf = (dir: string, blob: BlobDigest) => readdirSync(join(dir, "blobs", hexOf(blob))).sort();

test("data goes in frames to a store that is fetched from, and plain to one that is read in place", async () => {
  using remote = remoteStore();
  using place = temporaryDirectory();
  using node = await temporaryStore();
  const { digest, blob } = await layerOf(node.store);
  await pushLayer(digest, { layers: node.store, objects: remote.objects, signal: live() });
  await pushLayer(digest, { layers: node.store, objects: directoryStore(place.path), signal: live() });
  assert.deepEqual(filesOf(place.path, blob), ["blob.json", "chunks", "data"]);
  const metadataOf = (dir: string) => readdirSync(join(dir, "layers", hexOf(digest))).sort();
  assert.deepEqual(metadataOf(place.path), ["manifest.json", "metadata.erofs"]);
  assert.deepEqual(metadataOf(remote.dir), ["manifest.json", "metadata.erofs.zst"]);
  const [, , frames = "", table] = filesOf(remote.dir, blob);
  assert.deepEqual(filesOf(remote.dir, blob), ["blob.json", "chunks", frames, "frames.json"]);
  assert.equal(table, "frames.json");
  const bytes = readFileSync(join(remote.dir, "blobs", hexOf(blob), frames));
  assert.equal(frames, `frames-${sha256Hex(bytes)}`);
  assert.ok(bytes.length < SIZE_BYTES / 2);
  for (const objects of [remote.objects, directoryStore(place.path)]) await pulled(objects, digest);
  assert.deepEqual(readdirSync(join(node.store.dir, "tmp")), []);
});

test("what lies there plain stays so and is not sent again; what is plain and cut short is put in frames", async () => {
  using remote = remoteStore();
  using node = await temporaryStore();
  const { digest, blob } = await layerOf(node.store);
  const options = { layers: node.store, objects: remote.objects, signal: live() };
  // As an earlier version puts it.
  await pushLayer(digest, { ...options, objects: directoryStore(remote.dir) });
  await pushLayer(digest, options);
  assert.deepEqual(filesOf(remote.dir, blob), ["blob.json", "chunks", "data"]);
  await pulled(remote.objects, digest);
  await remote.objects.put(blobKey(blob, "data"), { sizeBytes: 0, sha256: sha256Hex(""), async *open() {} }, live());
  await pushLayer(digest, options);
  assert.ok(filesOf(remote.dir, blob).includes("frames.json"));
  await pulled(remote.objects, digest);
});

test("a push that broke off behind the frames does not send them again, and a damaged table is put anew", async () => {
  using remote = remoteStore();
  using node = await temporaryStore();
  const { digest, blob } = await layerOf(node.store);
  const options = { layers: node.store, objects: remote.objects, signal: live() };
  const framesPut = () => remote.put.filter((key) => /\/frames-/.test(key)).length;
  const put: ObjectStore["put"] = async (key, ...rest) => {
    if (key === tableKey(blob)) throw new Error("the node died");
    await remote.objects.put(key, ...rest);
  };
  await assert.rejects(pushLayer(digest, { ...options, objects: { ...remote.objects, put } }), /the node died/);
  assert.equal(framesPut(), 1);
  assert.deepEqual(readdirSync(join(node.store.dir, "tmp")), []);
  await pushLayer(digest, options);
  await pulled(remote.objects, digest);
  await remote.objects.remove(tableKey(blob), live());
  await pushLayer(digest, options);
  await remote.objects.put(tableKey(blob), { sizeBytes: 0, sha256: sha256Hex(""), async *open() {} }, live());
  await pushLayer(digest, options);
  await pulled(remote.objects, digest);
  assert.equal(framesPut(), 1);
});

test("metadata that is cut off, unfolds to more than it should, does not end, or wants a larger window is damaged, and plain metadata is read", async () => {
  using remote = remoteStore();
  using node = await temporaryStore();
  const { digest } = await layerOf(node.store);
  const options = { layers: node.store, objects: remote.objects, signal: live() };
  await pushLayer(digest, options);
  const path = join(remote.dir, packedMetadataKey(digest));
  const [packed, plain] = [readFileSync(path), readFileSync(node.store.metadataPath(digest))];
  assert.ok(packed.length < plain.length / 4);
  const noise = randomBytes(5 * 2 ** 20);
  // A frame that readers skip.
  const nothing = Buffer.alloc(plain.length + 2 ** 17);
  nothing.writeUInt32LE(0x184d2a50, 0);
  nothing.writeUInt32LE(nothing.length - 8, 4);
  const wrong = [
    packed.subarray(0, -3),
    packed.subarray(0, 1),
    Buffer.alloc(0),
    plain,
    zstdCompressSync(plain.subarray(4096)),
    zstdCompressSync(Buffer.alloc(2 ** 30)),
    zstdCompressSync(Buffer.concat([plain, Buffer.alloc(1)])),
    Buffer.concat([nothing, packed]),
    zstdCompressSync(noise, { params: { [constants.ZSTD_c_windowLog]: 27 } }),
  ];
  for (const bytes of wrong) {
    writeFileSync(path, bytes);
    await assert.rejects(pulled(remote.objects, digest), { kind: "Internal", message: /the metadata of layer/ });
  }
  // The next push sees that it is not what it should be.
  await pushLayer(digest, options);
  await pulled(remote.objects, digest);
  await remote.objects.remove(packedMetadataKey(digest), live());
  await assert.rejects(pulled(remote.objects, digest), { kind: "NotFound" });
  await pushLayer(digest, { ...options, objects: directoryStore(remote.dir) });
  await pulled(remote.objects, digest);
  await pushLayer(digest, options);
  assert.equal(existsSync(path), false);
});

test("a node without room for the frames says so, and keeps nothing of them", async () => {
  using remote = remoteStore();
  using disk = temporaryDirectory();
  mount("tmpfs", disk.path, "tmpfs", 0, "size=9m");
  try {
    using store = await openLayerStore(join(disk.path, "store"));
    const { layers } = await importBytes(store, archive({ path: "file", body: randomBytes(5 * 2 ** 20) }));
    const [digest] = layers;
    assert.ok(digest !== undefined);
    const pushing = pushLayer(digest, { layers: store, objects: remote.objects, signal: live() });
    await assert.rejects(pushing, { kind: "StorageFull" });
    assert.deepEqual(readdirSync(join(store.dir, "tmp")), []);
  } finally {
    unmount(disk.path);
  }
});

test("a collection removes frames with their blob, those of a push that broke off too", async () => {
  using remote = remoteStore();
  using node = await temporaryStore();
  const [kept, gone] = [await layerOf(node.store), await layerOf(node.store)];
  const pins = new StorePins({ objects: remote.objects, node: "one", clock: systemClock });
  const shared = new SharedLayers(node.store, remote.objects, pins);
  await shared.push([kept.digest], live());
  await pushLayer(gone.digest, { layers: node.store, objects: remote.objects, signal: live() });
  await remote.objects.remove(blobKey(gone.blob, "descriptor"), live());
  const { blobs, bytes } = await collectStore({
    objects: remote.objects,
    clock: systemClock,
    graceMs: -10_000,
    signal: live(),
  });
  assert.equal(blobs, 1);
  assert.ok(bytes > SIZE_BYTES / 4);
  assert.deepEqual(readdirSync(join(remote.dir, "blobs")), [hexOf(kept.blob)]);
  await pulled(remote.objects, kept.digest);
});
