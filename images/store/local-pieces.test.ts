import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { type BlobDescriptor, chunkLine, descriptorText, digestOfBlob } from "../blobs/descriptor.ts";
import { type BlobDigest, sha256Hex } from "../digest.ts";
import type { LayerStore } from "../store.ts";
import { archive, importBytes, type Member, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { directoryStore } from "./directory.ts";
import { blobKey } from "./layout.ts";
import { ListCheck, soundChunks } from "./local-pieces.ts";
import type { ObjectStore } from "./object-store.ts";
import { pullBlob } from "./pull.ts";
import { pushLayer } from "./push.ts";

const signal = AbortSignal.timeout(600_000);
const MIB = 2 ** 20;
/** Files of one byte more than a whole number of blocks, so that pieces hold parts of several. */
const FILES = Array.from({ length: 12 }, (_, at) => ({ path: `file-${at}`, body: randomBytes(150_001 + at * 4096) }));

async function importTo(store: LayerStore, ...members: readonly Member[]) {
  const [layer = assert.fail("no layer")] = (await importBytes(store, archive(...members))).layers;
  const [blob = assert.fail("no blob")] = (await store.manifest(layer)).blobs;
  return { layer, blob: blob.digest };
}

/** A store that counts the bytes of blobs that are read. */
function counting(objects: ObjectStore) {
  const read = { bytes: 0 };
  const get: ObjectStore["get"] = async function* (key, range, given) {
    for await (const piece of objects.get(key, range, given)) {
      if (key.endsWith("/data")) read.bytes += piece.length;
      yield piece;
    }
  };
  const counted = new Proxy(objects, {
    get: (_target, name) => (name === "get" ? get : Reflect.get(objects, name).bind(objects)),
  });
  return { read, objects: counted };
}

test("pieces of chunks that the node has in other blobs are not fetched, and the next node but one gains from that, too", async () => {
  using directory = temporaryDirectory();
  using a = await temporaryStore();
  using b = await temporaryStore();
  const { read, objects } = counting(directoryStore(directory.path));
  const news = { path: "news", body: randomBytes(MIB) };
  const { layer, blob } = await importTo(a.store, ...FILES, news);
  await pushLayer(layer, { layers: a.store, objects, signal });
  await importTo(b.store, ...FILES.toReversed());
  await pullBlob(blob, { layers: b.store, objects, signal });
  await b.store.blobs.verify(blob);
  const { sizeBytes } = await b.store.blobs.descriptor(blob);
  assert.ok(read.bytes >= MIB && read.bytes < sizeBytes - 1.5 * MIB, `${read.bytes} of ${sizeBytes}`);
  // What came was compared with its list: an import of the same file stores nothing.
  const before = await b.store.blobs.list();
  await importBytes(b.store, archive({ path: "elsewhere/news", body: news.body }));
  assert.deepEqual(await b.store.blobs.list(), before);
});

test("a list that lies brings no wrong byte, and is not kept", async () => {
  using directory = temporaryDirectory();
  using a = await temporaryStore();
  using b = await temporaryStore();
  const objects = directoryStore(directory.path);
  const { blob } = await importTo(a.store, ...FILES);
  const data = readFileSync(a.store.blobs.dataPath(blob));
  const chunks = soundChunks((await a.store.blobs.chunks(blob)) ?? "", await a.store.blobs.descriptor(blob)) ?? [];
  // Each chunk is said to be the one before it, all of which the node has.
  const lies = chunks.map((chunk, at) => chunkLine({ ...chunk, digest: chunks.at(at - 1)?.digest ?? "" })).join("");
  const lying = await publish(objects, { data, list: lies, like: await a.store.blobs.descriptor(blob) });
  await importTo(b.store, ...FILES);
  await pullBlob(lying, { layers: b.store, objects, signal });
  await b.store.blobs.verify(lying);
  assert.equal(await b.store.blobs.chunks(lying), undefined);
  for (const list of ["", "nonsense", chunkLine({ digest: "ab".repeat(32), block: 2 ** 60, bytes: -1 }).repeat(9)]) {
    const odd = await publish(objects, { data, list, like: await a.store.blobs.descriptor(blob) });
    await pullBlob(odd, { layers: b.store, objects, signal });
    await b.store.blobs.verify(odd);
  }
});

async function publish(
  objects: ObjectStore,
  { data, list, like }: { readonly data: Buffer; readonly list: string; readonly like: BlobDescriptor },
): Promise<BlobDigest> {
  const descriptor = { ...like, chunksSha256: sha256Hex(list) };
  const digest = digestOfBlob(descriptor);
  const parts = { data, chunks: Buffer.from(list), descriptor: Buffer.from(descriptorText(descriptor)) };
  for (const [name, bytes] of Object.entries(parts)) {
    const content = { sizeBytes: bytes.length, sha256: sha256Hex(bytes) };
    const open = async function* () {
      yield bytes;
    };
    await objects.put(blobKey(digest, name as keyof typeof parts), { ...content, open }, signal);
  }
  return digest;
}

test("data that was damaged on the node is fetched", async () => {
  using directory = temporaryDirectory();
  using a = await temporaryStore();
  using b = await temporaryStore();
  const { read, objects } = counting(directoryStore(directory.path));
  const { layer, blob } = await importTo(a.store, ...FILES, { path: "news", body: randomBytes(MIB) });
  await pushLayer(layer, { layers: a.store, objects, signal });
  const here = await importTo(b.store, ...FILES);
  const path = b.store.blobs.dataPath(here.blob);
  writeFileSync(path, Buffer.alloc(readFileSync(path).length, 1));
  await pullBlob(blob, { layers: b.store, objects, signal });
  await b.store.blobs.verify(blob);
  assert.equal(read.bytes, (await b.store.blobs.descriptor(blob)).sizeBytes);
});

test("a list is true of exactly the data that it was made of, in whatever parts that comes", () => {
  const cases = fc.tuple(
    fc.array(fc.uint8Array({ minLength: 1, maxLength: 9_000 }), { minLength: 1, maxLength: 8 }),
    fc.integer({ min: 1, max: 20_000 }),
    fc.nat(),
  );
  fc.assert(
    fc.property(cases, ([bodies, partBytes, damage]) => {
      let block = 0;
      const chunks = bodies.map((body) => {
        const chunk = { digest: sha256Hex(body), block, bytes: body.length };
        block += Math.ceil(body.length / 4096);
        return chunk;
      });
      const data = Buffer.alloc(block * 4096);
      for (const [at, body] of bodies.entries()) data.set(body, (chunks[at]?.block ?? 0) * 4096);
      const isTrueOf = (bytes: Buffer) => {
        const check = new ListCheck(chunks);
        for (let at = 0; at < bytes.length; at += partBytes) check.push(bytes.subarray(at, at + partBytes));
        return check.isTrue;
      };
      assert.equal(isTrueOf(data), true);
      const { block: start, bytes } = chunks[damage % chunks.length] ?? assert.fail("no chunk");
      const damaged = Buffer.from(data);
      damaged.writeUInt8(damaged.readUInt8(start * 4096 + (damage % bytes)) ^ 1, start * 4096 + (damage % bytes));
      assert.equal(isTrueOf(damaged), false);
      assert.equal(isTrueOf(data.subarray(0, -4096)), false);
    }),
  );
});
