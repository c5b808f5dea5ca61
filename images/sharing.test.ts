import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { LayerDigest } from "#core/sandbox.ts";
import { collectGarbage } from "./collect.ts";
import { openLayerStore } from "./store.ts";
import { archive, importBytes, type Member, temporaryStore } from "./test-support/fixtures.ts";
import { fsck, mounted } from "./test-support/inspect.ts";

const MIB = 2 ** 20;

type Made = Awaited<ReturnType<typeof temporaryStore>>;

async function layerOf(made: Pick<Made, "store">, ...members: Member[]): Promise<LayerDigest> {
  const { layers } = await importBytes(made.store, archive(...members));
  return layers[0] ?? assert.fail("no layer");
}

describe("layers of one store", () => {
  test("share chunks: what a blob has is not stored again, and reads right from there", async () => {
    using made = await temporaryStore();
    const [old, fresh] = [randomBytes(3 * MIB + 5), randomBytes(MIB)];
    const first = await layerOf(made, { path: "old", body: old });
    const second = await layerOf(made, { path: "fresh", body: fresh }, { path: "again", body: old });
    const [lower, upper] = [await made.store.manifest(first), await made.store.manifest(second)];
    assert.deepEqual(upper.blobs.map(({ sizeBytes }) => sizeBytes).sort(), [MIB, 3 * MIB + 4096].sort());
    assert.ok(upper.blobs.some(({ digest }) => digest === lower.blobs[0]?.digest));
    await made.store.verify(second);
    await fsck(made.store, second);
    for (const mode of ["files-first", "loop"] as const) {
      using layer = await mounted(made.store, second, mode);
      assert.ok(readFileSync(join(layer.path, "again")).equals(old));
      assert.ok(readFileSync(join(layer.path, "fresh")).equals(fresh));
    }
  });

  test("of many parts point into as many blobs as an image can name, and store the rest again", async () => {
    using made = await temporaryStore();
    const bodies = Array.from({ length: 130 }, (_, index) => ({ path: `f${index}`, body: `body ${index}` }));
    for (const member of bodies) await layerOf(made, member);
    const digest = await layerOf(made, ...bodies);
    const { blobs } = await made.store.manifest(digest);
    assert.equal(blobs.length, 119);
    assert.deepEqual(
      blobs
        .map((blob) => blob.sizeBytes)
        .sort((a, b) => b - a)
        .slice(0, 2),
      [12 * 4096, 4096],
    );
    for (const mode of ["files-first", "loop"] as const) {
      using layer = await mounted(made.store, digest, mode);
      for (const { path, body } of bodies) assert.equal(readFileSync(join(layer.path, path), "utf8"), body);
    }
  });

  test("with no data have no blob, and mount", async () => {
    using made = await temporaryStore();
    const digest = await layerOf(made, { path: "empty", body: "" }, { path: "zeros", body: Buffer.alloc(5000) });
    assert.deepEqual((await made.store.manifest(digest)).blobs, []);
    assert.deepEqual(await made.store.blobs.list(), []);
    using layer = await mounted(made.store, digest);
    assert.ok(readFileSync(join(layer.path, "zeros")).equals(Buffer.alloc(5000)));
  });

  test("get their digest again although their chunks came to lie elsewhere", async () => {
    using made = await temporaryStore();
    const [a, b] = [
      { path: "a", body: randomBytes(9000) },
      { path: "b", body: randomBytes(9000) },
    ];
    const both = await layerOf(made, a, b);
    rmSync(join(made.store.dir, "index.db"));
    using anew = await openLayerStore(made.store.dir);
    const chunks = new Set((await anew.manifest(both)).blobs);
    assert.equal(chunks.size, 1);
    assert.equal(await layerOf({ store: anew }, a, b), both, "from the lists beside the blobs");
    assert.equal(await layerOf({ store: anew }, b, a), both, "in another order");
  });

  test("made at once by several processes share one name", async () => {
    using made = await temporaryStore();
    const script = `
      import { openLayerStore } from "${import.meta.dirname}/store.ts";
      import { archive, importBytes } from "${import.meta.dirname}/test-support/fixtures.ts";
      const store = await openLayerStore(process.argv[1]);
      for (let i = 0; i < 5; i++) {
        const bodies = [i, i + 1, i + 2].map((n) => ({ path: "f" + n, body: Buffer.alloc(200_000, "x" + n) }));
        console.log((await importBytes(store, archive(...bodies))).layers[0]);
      }`;
    const outputs = await Promise.all([1, 2, 3].map(() => outputOf(script, made.store.dir)));
    assert.equal(outputs[0]?.trim().split("\n").length, 5);
    assert.equal(new Set(outputs).size, 1);
    for (const digest of await made.store.list()) await made.store.verify(digest);
  });
});

describe("the index of chunks", () => {
  test("that is damaged is made again from the lists beside the blobs", async () => {
    using made = await temporaryStore();
    const body = randomBytes(10_000);
    await layerOf(made, { path: "first", body });
    made.store[Symbol.dispose]();
    writeFileSync(join(made.store.dir, "index.db"), randomBytes(50_000));
    using store = await openLayerStore(made.store.dir);
    await layerOf({ store }, { path: "second", body });
    assert.equal((await store.blobs.list()).length, 1);
  });

  test("takes up no list that was damaged: what it says would be in later layers", async () => {
    using made = await temporaryStore();
    const members = ["first", "second"].map((text) => ({ path: text, body: text }));
    await layerOf(made, ...members);
    const [blob = assert.fail("no blob")] = await made.store.blobs.list();
    const list = join(made.store.blobs.dataPath(blob), "../chunks");
    const lines = readFileSync(list, "utf8").split("\n");
    // Each chunk where the other one is.
    writeFileSync(
      list,
      lines.map((line, index) => `${line.slice(0, 64)}${lines[1 - index]?.slice(64) ?? ""}`).join("\n"),
    );
    made.store[Symbol.dispose]();
    rmSync(join(made.store.dir, "index.db"));
    using store = await openLayerStore(made.store.dir);
    const again = await layerOf({ store }, ...members, { path: "third", body: "third" });
    using layer = await mounted(store, again);
    for (const { path, body } of members) assert.equal(readFileSync(join(layer.path, path), "utf8"), body);
  });

  test("never points into a blob that was removed", async () => {
    using made = await temporaryStore();
    const body = randomBytes(10_000);
    const first = await layerOf(made, { path: "first", body });
    await collectGarbage(made.store, new Set(), { addedBeforeMs: Date.now() + 60_000 });
    assert.deepEqual(await made.store.blobs.list(), []);
    const second = await layerOf(made, { path: "second", body });
    assert.notEqual(second, first);
    await made.store.verify(second);
    assert.equal(await layerOf(made, { path: "first", body }), first);
    await made.store.verify(first);
  });
});

describe("collecting blobs", () => {
  test("spares those that any layer points into", async () => {
    using made = await temporaryStore();
    const body = randomBytes(10_000);
    await layerOf(made, { path: "first", body });
    const second = await layerOf(made, { path: "second", body });
    await collectGarbage(made.store, new Set([second]), { addedBeforeMs: Date.now() + 60_000 });
    assert.equal((await made.store.blobs.list()).length, 1);
    await made.store.verify(second);
  });

  test("spares those that a layer being made holds, and those added since", async () => {
    using made = await temporaryStore();
    const layer = await layerOf(made, { path: "file", body: "x" });
    const [blob = assert.fail("no blob")] = await made.store.blobs.list();
    await made.store.remove(layer);
    const old = { addedBeforeMs: Date.now() + 60_000 };
    {
      using _hold = made.store.blobs.hold(blob) ?? assert.fail("no hold");
      assert.deepEqual(await made.store.collectBlobs(old), []);
    }
    const { mtimeMs } = statSync(join(made.store.blobs.dataPath(blob), "../blob.json"));
    assert.deepEqual(await made.store.collectBlobs({ addedBeforeMs: mtimeMs }), []);
    assert.deepEqual(await made.store.collectBlobs(old), [blob]);
    assert.equal(existsSync(made.store.blobs.dataPath(blob)), false);
    assert.equal(made.store.blobs.hold(blob), undefined);
  });
});

async function outputOf(script: string, directory: string): Promise<string> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", script, directory], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const [status] = await once(child, "close");
  assert.equal(status, 0);
  return output;
}
