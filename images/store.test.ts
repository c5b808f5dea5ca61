import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { LayerDigest } from "#core/sandbox.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import { collectGarbage, findGarbage } from "./collect.ts";
import { parseLayerDigest } from "./digest.ts";
import { openLayerStore } from "./store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "./test-support/fixtures.ts";

const UNKNOWN = parseLayerDigest(`sha256:${"0".repeat(64)}`);

async function layerOf(made: Awaited<ReturnType<typeof temporaryStore>>, text: string): Promise<LayerDigest> {
  const { layers } = await importBytes(made.store, archive({ path: "file", body: text }));
  const [digest] = layers;
  assert.ok(digest !== undefined);
  return digest;
}

/** Flips one bit in the middle of a file. */
function damage(path: string): void {
  const bytes = readFileSync(path);
  const middle = bytes.length >> 1;
  bytes[middle] = (bytes[middle] ?? 0) ^ 1;
  writeFileSync(path, bytes);
}

describe("a layer store", () => {
  test("names a layer by its content: importing it again changes nothing", async () => {
    using made = await temporaryStore();
    const first = await layerOf(made, "same");
    assert.equal(await layerOf(made, "same"), first);
    assert.notEqual(await layerOf(made, "other"), first);
    assert.equal((await made.store.list()).length, 2);
    await made.store.verify(first);
  });

  test("finds layers again after it was opened anew", async () => {
    using made = await temporaryStore();
    const digest = await layerOf(made, "kept");
    using again = await openLayerStore(made.store.dir);
    assert.ok(await again.has(digest));
    assert.deepEqual(await again.manifest(digest), await made.store.manifest(digest));
  });

  test("answers NotFound for a layer it lacks", async () => {
    using made = await temporaryStore();
    assert.equal(await made.store.has(UNKNOWN), false);
    await assert.rejects(made.store.manifest(UNKNOWN), { kind: "NotFound" });
    await assert.rejects(made.store.verify(UNKNOWN), { kind: "NotFound" });
    await made.store.remove(UNKNOWN);
  });

  test("names the part that was damaged", async () => {
    for (const part of ["metadata", "data", "chunks"] as const) {
      using made = await temporaryStore();
      const digest = await layerOf(made, "sound");
      const { blobs } = await made.store.manifest(digest);
      const [device = assert.fail("no blob")] = (await made.store.paths(digest)).devices;
      const details = part === "metadata" ? { layer: digest, part } : { blob: blobs[0]?.digest, part };
      damage(part === "metadata" ? made.store.metadataPath(digest) : join(device, "..", part));
      await assert.rejects(made.store.verify(digest), { kind: "Internal", details });
    }
  });

  test("notices a manifest or descriptor that was changed and an image that was cut without reading everything", async () => {
    using made = await temporaryStore();
    const digest = await layerOf(made, "sound");
    const [device = assert.fail("no blob")] = (await made.store.paths(digest)).devices;
    truncateSync(device, 100);
    await assert.rejects(made.store.check(digest), { kind: "Internal", message: /the data of blob/ });
    damage(join(device, "../blob.json"));
    await assert.rejects(made.store.check(digest), { kind: "Internal", message: /the descriptor of blob/ });
    damage(join(made.store.metadataPath(digest), "../manifest.json"));
    await assert.rejects(made.store.manifest(digest), {
      kind: "Internal",
      details: { layer: digest, part: "manifest" },
    });
  });

  test("refuses a store of an older format and says what to do", async () => {
    using directory = temporaryDirectory();
    mkdirSync(join(directory.path, "layers", "0".repeat(64)), { recursive: true });
    await assert.rejects(openLayerStore(directory.path), {
      kind: "FailedPrecondition",
      hint: /import the artifacts again/,
    });
  });

  test("sweeps at opening what a killed process left, and not what a living one works on", async () => {
    using made = await temporaryStore();
    await using scratch = await made.store.scratch();
    const orphan = join(made.store.dir, "tmp", "orphan");
    mkdirSync(orphan);
    writeFileSync(join(orphan, "data.blob"), "half");
    (await openLayerStore(made.store.dir))[Symbol.dispose]();
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), [scratch.dir.split("/").at(-1)]);
  });

  test("is whole after an importing process was killed at any moment", async () => {
    using made = await temporaryStore();
    const script = `
      import { openLayerStore } from "${import.meta.dirname}/store.ts";
      import { archive, importBytes } from "${import.meta.dirname}/test-support/fixtures.ts";
      const store = await openLayerStore(process.argv[1]);
      setTimeout(() => process.kill(process.pid, "SIGKILL"), Number(process.argv[2]));
      for (let i = 0; ; i++) await importBytes(store, archive({ path: "f" + i, body: Buffer.alloc(3e6, "x" + i) }));`;
    for (const delayMs of [5, 30, 60]) {
      const args = ["--input-type=module", "-e", script, made.store.dir, String(delayMs)];
      assert.throws(() => execFileSync(process.execPath, args, { stdio: "ignore" }), { signal: "SIGKILL" });
      using store = await openLayerStore(made.store.dir);
      assert.deepEqual(readdirSync(join(store.dir, "tmp")), []);
      for (const digest of await store.list()) await store.verify(digest);
    }
  });

  test("takes many imports at once, equal ones among them", async () => {
    using made = await temporaryStore();
    const imports = Array.from({ length: 24 }, (_, index) => layerOf(made, `content ${index % 8}`));
    assert.equal(new Set(await Promise.all(imports)).size, 8);
    assert.equal((await made.store.list()).length, 8);
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });

  test("on a full disk answers StorageFull, leaves nothing, and works again when there is room", async () => {
    using disk = temporaryDirectory();
    mount("tmpfs", disk.path, "tmpfs", 0, "size=2m");
    try {
      using store = await openLayerStore(join(disk.path, "store"));
      const noise = randomBytes(4 * 2 ** 20);
      const full = archive({ path: "big", body: noise });
      await assert.rejects(importBytes(store, full), { kind: "StorageFull" });
      await assert.rejects(importBytes(store, full, { format: "oci" }), { kind: "StorageFull" });
      for (const name of ["layers", "blobs", "tmp"]) assert.deepEqual(readdirSync(join(store.dir, name)), []);
      assert.equal((await importBytes(store, archive({ path: "small", body: "x" }))).layers.length, 1);
    } finally {
      unmount(disk.path);
    }
  });
});

describe("collecting garbage", () => {
  test("removes what nothing needs and never what is named", async () => {
    using made = await temporaryStore();
    const [kept, dropped] = [await layerOf(made, "kept"), await layerOf(made, "dropped")];
    const old = { addedBeforeMs: Date.now() + 60_000 };
    const removed = await collectGarbage(made.store, new Set([kept]), old);
    assert.deepEqual(removed, [dropped]);
    assert.deepEqual(await made.store.list(), [kept]);
  });

  test("is told before it is done: which layers would go, and bytes that nothing else has", async () => {
    using made = await temporaryStore();
    const [kept, dropped] = [await layerOf(made, "kept"), await layerOf(made, "dropped")];
    const old = { addedBeforeMs: Date.now() + 60_000 };
    const held = async () => {
      const layers = await Promise.all((await made.store.list()).map((digest) => made.store.manifest(digest)));
      const blobs = await Promise.all((await made.store.blobs.list()).map((blob) => made.store.blobs.descriptor(blob)));
      const sizes = [...layers.map(({ metadata }) => metadata.sizeBytes), ...blobs.map(({ sizeBytes }) => sizeBytes)];
      return sizes.reduce((sum, bytes) => sum + bytes, 0);
    };
    const before = await held();
    const found = await findGarbage(made.store, new Set([kept]), old);
    assert.deepEqual([found.layers, await made.store.has(dropped), await held()], [[dropped], true, before]);
    await collectGarbage(made.store, new Set([kept]), old);
    assert.ok(found.bytes > 0);
    assert.equal(before - (await held()), found.bytes);
    assert.deepEqual(await findGarbage(made.store, new Set([kept]), old), { layers: [], bytes: 0 });
    assert.deepEqual(await findGarbage(made.store, new Set(), { addedBeforeMs: 0 }), { layers: [], bytes: 0 });
  });

  test("leaves layers that were added, or added again, since the given moment", async () => {
    using made = await temporaryStore();
    const digest = await layerOf(made, "young");
    const addedAtMs = (await made.store.addedAtMs(digest)) ?? 0;
    await layerOf(made, "young");
    assert.ok(((await made.store.addedAtMs(digest)) ?? 0) >= addedAtMs);
    assert.deepEqual(await collectGarbage(made.store, new Set(), { addedBeforeMs: addedAtMs }), []);
    assert.ok(await made.store.has(digest));
  });
});
