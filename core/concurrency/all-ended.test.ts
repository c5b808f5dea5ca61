import assert from "node:assert/strict";
import { test } from "node:test";
import { allEnded } from "./all-ended.ts";

test("results come in their order, and a failure after the last has ended", async () => {
  const slow = Promise.withResolvers<string>();
  assert.deepEqual(await allEnded([Promise.resolve(1), Promise.resolve(2)]), [1, 2]);
  let isOver = false;
  const all = allEnded([slow.promise, Promise.reject(new Error("first"))]).finally(() => {
    isOver = true;
  });
  const rejected = assert.rejects(all, /first/);
  await new Promise(setImmediate);
  assert.equal(isOver, false);
  slow.resolve("end");
  await rejected;
});
