import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readObject } from "#images/store/object-store.ts";
import { openObjectStore } from "#images/store/open.ts";
import { temporaryDirectory } from "#images/test-support/fixtures.ts";
import { startSlowStore } from "./slow-store.ts";

test("every byte comes, no faster than was asked for, and what is put stays out of the directory", async () => {
  using directory = temporaryDirectory();
  const data = Buffer.from(Array.from({ length: 300_000 }, (_, at) => at % 251));
  mkdirSync(join(directory.path, "blobs"));
  writeFileSync(join(directory.path, "blobs/one"), data);
  await using store = await startSlowStore(directory.path, { bytesPerS: 3_000_000, delayMs: 5 });
  const [, endpoint = ""] = /--store-endpoint=(\S+)/.exec(store.nodeOptions.words.join(" ")) ?? [];
  const credentials = { accessKeyId: "bench", secretAccessKey: "bench" };
  await using objects = openObjectStore({ store: "s3://layers/dsec", endpoint }, credentials);
  const signal = AbortSignal.timeout(120_000);
  const start = performance.now();
  assert.deepEqual(await readObject(objects, "blobs/one", 300_000, signal), data);
  // The machine may add to it; only what may be caught up can be taken from it.
  assert.ok(performance.now() - start >= 80);
  assert.equal(store.sentBytes, data.length);
  const part = await Array.fromAsync(objects.get("blobs/one", { offset: 70_000, lengthBytes: 5_000 }, signal));
  assert.deepEqual(Buffer.concat(part), data.subarray(70_000, 75_000));
  assert.equal(await objects.head("blobs/two", signal), undefined);
  const put = { sizeBytes: 3, sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" };
  await objects.put(
    "blobs/two",
    {
      ...put,
      async *open() {
        yield Buffer.from("abc");
      },
    },
    signal,
  );
  assert.equal((await readObject(objects, "blobs/two", 10, signal)).toString(), "abc");
  assert.deepEqual(readdirSync(join(directory.path, "blobs")), ["one"]);
});
