import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { Processors, parseProcessorList, processorList } from "./processors.ts";

describe("processors of sandboxes", () => {
  test("are as many as the limit can keep busy, and never more than there are", () => {
    const processors = new Processors([0, 1, 2, 3]);
    assert.equal(processors.assign("a", 0.1).length, 1);
    assert.equal(processors.assign("b", 1).length, 1);
    assert.equal(processors.assign("c", 1.1).length, 2);
    assert.deepEqual(processors.assign("d", 64), [0, 1, 2, 3]);
  });

  test("those that are promised least come first, neighbours together", () => {
    const processors = new Processors([0, 1, 2, 3]);
    assert.deepEqual(processors.assign("a", 2), [0, 1]);
    assert.deepEqual(processors.assign("b", 2), [2, 3]);
    assert.deepEqual(processors.assign("c", 0.5), [0]);
    assert.deepEqual(processors.assign("d", 1), [1]);
    processors.release("b");
    assert.deepEqual(processors.assign("e", 2), [2, 3]);
  });

  test("what is released is free again, once, and strangers release nothing", () => {
    const processors = new Processors([0, 1]);
    processors.adopt("old", 1, [0]);
    assert.deepEqual(processors.assign("a", 1), [1]);
    for (const id of ["old", "old", "stranger"]) processors.release(id);
    assert.deepEqual(processors.assign("b", 1), [0]);
    assert.deepEqual(processors.assign("c", 0.25), [0]);
  });

  test("a processor that the node has lost is not given, and not counted", () => {
    const processors = new Processors([1]);
    processors.adopt("old", 4, [0, 7]);
    assert.deepEqual(processors.assign("a", 4), [1]);
    processors.release("old");
  });

  test("promises stay within one sandbox of each other, whatever comes and goes", () => {
    const steps = fc.array(fc.record({ id: fc.nat(20), gone: fc.boolean() }), { maxLength: 200 });
    fc.assert(
      fc.property(steps, (all) => {
        const processors = new Processors([0, 1, 2]);
        const held = new Map<number, number>();
        for (const { id, gone } of all) {
          if (gone) {
            processors.release(String(id));
            held.delete(id);
          } else {
            held.delete(id);
            const [given = -1] = processors.assign(String(id), 1);
            const load = (number: number) => [...held.values()].filter((other) => other === number).length;
            assert.ok([0, 1, 2].every((other) => load(given) <= load(other)));
            held.set(id, given);
          }
        }
      }),
    );
  });

  test("a list reads back as the numbers it was made of", () => {
    assert.equal(processorList([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(300), { minLength: 1 }), (numbers) => {
        const sorted = numbers.toSorted((a, b) => a - b);
        assert.deepEqual(parseProcessorList(processorList(sorted)), sorted);
      }),
    );
  });
});
