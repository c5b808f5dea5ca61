import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { boundOf, holds, round } from "./figure.ts";
import { describeMs, inParallel, median, quantile } from "./stats.ts";

describe("quantile", () => {
  test("is the nearest rank", () => {
    assert.equal(median([3, 1, 2]), 2);
    assert.equal(median([4, 1, 2, 3]), 2);
    assert.equal(quantile([1, 2, 3, 4], 1), 4);
    assert.ok(Number.isNaN(median([])));
  });
  test("is one of the values, with at least the asked share at or below it", () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ noNaN: true }), { minLength: 1 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (values, share) => {
          const value = quantile(values, share);
          assert.ok(values.includes(value));
          assert.ok(values.filter((other) => other <= value).length >= share * values.length - 1e-9);
        },
      ),
    );
  });
  test("is described for people", () => assert.equal(describeMs([1, 2, 3]), "p50 2.00, p90 3.00, p99 3.00 ms (3)"));
});

describe("inParallel", () => {
  test("runs everything once, never more than its width at a time", async () => {
    let running = 0;
    let most = 0;
    const results = await inParallel(20, 4, async (index) => {
      most = Math.max(most, ++running);
      await new Promise(setImmediate);
      running--;
      return index;
    });
    assert.deepEqual(results, [...Array(20).keys()]);
    assert.equal(most, 4);
  });
  test("rejects after what was under way has ended", async () => {
    let ended = 0;
    const work = async (index: number) => {
      await new Promise(setImmediate);
      ended++;
      if (index === 1) throw new Error("one");
    };
    await assert.rejects(inParallel(10, 2, work), /one/);
    assert.ok(ended <= 3);
  });
});

describe("a bound", () => {
  test("is read from the table of figures", () => {
    assert.equal(boundOf("create.rate").op, ">=");
    assert.throws(() => boundOf("create.none"), /has no create.none/);
  });
  test("holds at its edge", () => {
    const bound = { op: "<=", bound: 3, unit: "ms", meaning: "" } as const;
    assert.deepEqual([holds(bound, 3), holds(bound, 3.01), holds({ ...bound, op: ">=" }, 2.99)], [true, false, false]);
  });
  test("is compared with what was measured, not with what is printed", () => assert.equal(round(3.00049), 3));
});
