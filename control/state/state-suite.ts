import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { MemoryState } from "./memory.ts";
import type { Expected, StateStore } from "./store.ts";

/** Every store of state passes this. `make` gives an empty one. */
export function stateStoreContract(name: string, make: () => StateStore): void {
  describe(`${name} keeps the StateStore contract`, () => {
    test("a key is made once with `absent`", async () => {
      await using store = make();
      const first = await store.put("a", "1", "absent");
      assert.equal(typeof first, "number");
      assert.equal(await store.put("a", "2", "absent"), undefined);
      assert.deepEqual(await store.get("a"), { key: "a", value: "1", revision: first });
    });

    test("of writers that saw the same revision exactly one wins", async () => {
      await using store = make();
      const revision = await store.put("a", "0", "any");
      assert.ok(revision !== undefined);
      const results = await Promise.all(Array.from({ length: 20 }, (_, n) => store.put("a", String(n), revision)));
      assert.equal(results.filter((result) => result !== undefined).length, 1);
    });

    test("a key that was deleted and made again does not match its old revision", async () => {
      await using store = make();
      const old = await store.put("a", "1", "any");
      assert.ok(old !== undefined);
      assert.equal(await store.delete("a", old), true);
      const fresh = await store.put("a", "1", "absent");
      assert.ok(fresh !== undefined && fresh > old);
      assert.equal(await store.put("a", "2", old), undefined);
      assert.equal(await store.delete("a", old), false);
    });

    test("deleting what is not there succeeds", async () => {
      await using store = make();
      assert.equal(await store.delete("a", "any"), true);
      assert.equal(await store.delete("a", 7), true);
    });

    test("a list holds exactly the prefix, wildcards of query languages included", async () => {
      await using store = make();
      for (const key of ["a%b/1", "a%b/2", "axb/3", "a%b", "a%c/1", "A%b/1"]) await store.put(key, "", "any");
      assert.deepEqual(
        (await store.list("a%b/")).map((entry) => entry.key),
        ["a%b/1", "a%b/2"],
      );
    });

    test("pages join to the whole list", async () => {
      await using store = make();
      const keys = Array.from({ length: 25 }, (_, n) => `p/${String(n).padStart(2, "0")}`);
      for (const key of keys.toReversed()) await store.put(key, "", "any");
      const seen: string[] = [];
      for (let after: string | undefined; ; ) {
        const page = await store.list("p/", { limit: 10, ...(after === undefined ? {} : { after }) });
        seen.push(...page.map((entry) => entry.key));
        after = page.at(-1)?.key;
        if (page.length < 10) break;
      }
      assert.deepEqual(seen, keys);
    });

    test("any history of calls equals that of a map", async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(anyStep, { maxLength: 60 }), (steps) => agree(make, steps)),
        { numRuns: 40 },
      );
    });
  });
}

interface Step {
  readonly verb: "put" | "delete" | "list";
  readonly key: string;
  readonly value: string;
  readonly expect: "absent" | "any" | "current" | "stale";
}

const anyStep: fc.Arbitrary<Step> = fc.record({
  verb: fc.constantFrom("put" as const, "put" as const, "delete" as const, "list" as const),
  key: fc.constantFrom("a", "a/b", "a/b/c", "ä", "\u{1f600}", "\ufffd", "b"),
  value: fc.string(),
  expect: fc.constantFrom("absent" as const, "any" as const, "current" as const, "stale" as const),
});

async function agree(make: () => StateStore, steps: readonly Step[]): Promise<void> {
  await using store = make();
  const model = new MemoryState();
  for (const step of steps) {
    const expected = await expectation(model, step);
    if (step.verb === "put") {
      assert.equal(await store.put(step.key, step.value, expected), await model.put(step.key, step.value, expected));
    } else if (step.verb === "delete") {
      const of = expected === "absent" ? "any" : expected;
      assert.equal(await store.delete(step.key, of), await model.delete(step.key, of));
    }
    assert.deepEqual(await store.list(step.key), await model.list(step.key));
    assert.deepEqual(await store.get(step.key), await model.get(step.key));
  }
}

async function expectation(model: MemoryState, step: Step): Promise<Expected> {
  if (step.expect === "absent" || step.expect === "any") return step.expect;
  const current = (await model.get(step.key))?.revision ?? 0;
  return step.expect === "current" ? current : current + 1_000_000;
}
