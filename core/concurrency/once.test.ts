import assert from "node:assert/strict";
import { test } from "node:test";
import { Once } from "./once.ts";

test("Once makes it once however many wait, anew after it failed, and gives it up once", async () => {
  let made = 0;
  const once = new Once(async () => {
    made += 1;
    if (made === 1) throw new Error("the first fails");
    return made;
  });
  assert.equal(once.isAsked, false);
  const first = [once.get(), once.get()];
  assert.equal(once.isAsked, true);
  for (const waiting of first) await assert.rejects(waiting, /the first fails/);
  assert.equal(once.isAsked, false);
  assert.deepEqual(await Promise.all([once.get(), once.get()]), [2, 2]);
  assert.deepEqual([await once.release(), await once.release()], [2, undefined]);
  assert.equal(await once.get(), 3);
});

test("Once gives up one that is being made when it is made, and nothing of one that fails", async () => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const once = new Once(() => promise);
  void once.get();
  const released = once.release();
  resolve("late");
  assert.equal(await released, "late");
  const failing = new Once(() => Promise.reject(new Error("no")));
  failing.get().catch(() => undefined);
  assert.equal(await failing.release(), undefined);
});
