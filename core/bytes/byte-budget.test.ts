import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ByteBudget, type ByteHold } from "#core/bytes/byte-budget.ts";

const LIMITS = { what: "results", totalBytes: 100, projectBytes: 40, waiting: 100 } as const;
const NEVER = new AbortController().signal;
const settled = () => new Promise(setImmediate);

/** Whether a promise has settled. */
async function isThere(promise: Promise<unknown>): Promise<boolean> {
  await settled();
  return (await Promise.race([promise.then(() => true), Promise.resolve(false)])) === true;
}

test("a project waits for its own, others do not wait for it", async () => {
  const budget = new ByteBudget(LIMITS);
  const held = await budget.take("a", 40, NEVER);
  const second = budget.take("a", 1, NEVER);
  await budget.take("b", 40, NEVER);
  assert.equal(await isThere(second), false);
  assert.equal(budget.waiting, 1);
  held[Symbol.dispose]();
  held[Symbol.dispose]();
  await second;
  assert.equal(budget.heldBytes, 41);
});

test("what is known to be less makes room, and what is more is counted", async () => {
  const budget = new ByteBudget(LIMITS);
  const held = await budget.take("a", 40, NEVER);
  const second = budget.take("a", 30, NEVER);
  held.resize(10);
  await second;
  held.resize(60);
  assert.equal(budget.heldBytes, 90);
});

test("what is larger than a share, or than all, is held alone", async () => {
  const budget = new ByteBudget(LIMITS);
  const small = await budget.take("b", 10, NEVER);
  const large = budget.take("a", 500, NEVER);
  // Nobody overtakes it.
  const behind = budget.take("c", 1, NEVER);
  assert.deepEqual([await isThere(large), await isThere(behind)], [false, false]);
  small[Symbol.dispose]();
  (await large)[Symbol.dispose]();
  await behind;
});

test("who leaves makes way, and gives back what it holds", async () => {
  const budget = new ByteBudget({ ...LIMITS, waiting: 2 });
  const leaver = new AbortController();
  await budget.take("a", 40, leaver.signal);
  const waits = budget.take("a", 40, leaver.signal);
  const other = budget.take("a", 5, NEVER);
  await assert.rejects(budget.take("a", 5, NEVER), { kind: "Overloaded" });
  leaver.abort(new Error("left"));
  await assert.rejects(waits, /left/);
  await other;
  assert.deepEqual([budget.heldBytes, budget.waiting], [5, 0]);
});

test("whatever is asked for, no more than the limits is held, and everybody has a turn", async () => {
  const asks = fc.array(fc.record({ project: fc.constantFrom("a", "b", "c"), bytes: fc.integer({ min: 0, max: 40 }) }));
  await fc.assert(
    fc.asyncProperty(asks, async (wanted) => {
      const budget = new ByteBudget(LIMITS);
      const held = new Map<string, number>();
      const add = (project: string, bytes: number) => {
        held.set(project, (held.get(project) ?? 0) + bytes);
        assert.ok((held.get(project) ?? 0) <= 40 && budget.heldBytes <= 100);
      };
      const use = async ({ project, bytes }: (typeof wanted)[number]) => {
        using _hold: ByteHold = await budget.take(project, bytes, NEVER);
        add(project, bytes);
        await settled();
        add(project, -bytes);
      };
      await Promise.all(wanted.map(use));
      assert.deepEqual([budget.heldBytes, budget.waiting], [0, 0]);
    }),
  );
});
