import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { pooled } from "./pool.ts";

test("every item is done once, never more than so many at a time, in whatever order they end", async () => {
  const runs = fc.asyncProperty(
    fc.scheduler(),
    fc.integer({ min: 0, max: 30 }),
    fc.integer({ min: 1, max: 40 }),
    async (scheduler, count, concurrency) => {
      let running = 0;
      let most = 0;
      const act = async (item: number) => {
        running += 1;
        most = Math.max(most, running);
        await scheduler.schedule(Promise.resolve());
        running -= 1;
        return item;
      };
      const items = Array.from({ length: count }, (_, item) => item);
      const results = await scheduler.waitFor(Array.fromAsync(pooled(items, concurrency, act)));
      assert.deepEqual(
        results.toSorted((a, b) => a - b),
        items,
      );
      assert.ok(most <= concurrency, `${most} at a time`);
    },
  );
  await fc.assert(runs);
});

test("an item that never ends keeps its own place and no other", async () => {
  const stuck = new Promise<string>(() => undefined);
  const results = pooled(["a", "stuck", "b", "c"], 2, (item) => (item === "stuck" ? stuck : Promise.resolve(item)));
  const seen = [await results.next(), await results.next(), await results.next()].map(({ value }) => value);
  assert.deepEqual(seen, ["a", "b", "c"]);
});

test("a reader that leaves begins no more", async () => {
  const begun: number[] = [];
  const results = pooled([1, 2, 3, 4, 5, 6], 2, async (item) => begun.push(item));
  await results.next();
  await results.return();
  assert.ok(begun.length <= 3, `${begun}`);
});
