import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Turns } from "#core/concurrency/turns.ts";

const never = new AbortController().signal;

/** A work that a test ends by hand. */
function work(turns: Turns, signal = never) {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const one = { began: false, end: resolve, fail: reject };
  const done = turns.run(signal, () => {
    one.began = true;
    return promise;
  });
  return Object.assign(one, { done });
}

describe("turns", () => {
  test("are had by as many at a time as there are, in the order of coming", async () => {
    const turns = new Turns(2);
    const all = [work(turns), work(turns), work(turns), work(turns)] as const;
    const began = () => all.map((one) => one.began);
    await new Promise(setImmediate);
    assert.deepEqual(began(), [true, true, false, false]);
    all[1].end("done");
    assert.equal(await all[1].done, "done");
    await new Promise(setImmediate);
    assert.deepEqual(began(), [true, true, true, false]);
    all[0].fail(new Error("broken"));
    await assert.rejects(all[0].done, /broken/);
    await new Promise(setImmediate);
    assert.deepEqual(began(), [true, true, true, true]);
    for (const one of [all[2], all[3]]) one.end("late");
    assert.deepEqual(await Promise.all([all[2].done, all[3].done]), ["late", "late"]);
  });

  test("are not had by who has left, and nobody behind loses theirs", async () => {
    const turns = new Turns(1);
    const leaving = new AbortController();
    const [first, gone, last] = [work(turns), work(turns, leaving.signal), work(turns)];
    leaving.abort(new Error("left"));
    await assert.rejects(gone.done, /left/);
    await assert.rejects(work(turns, leaving.signal).done, /left/);
    first.end("1");
    await first.done;
    last.end("3");
    assert.equal(await last.done, "3");
    assert.equal(gone.began, false);
    const again = work(turns);
    again.end("4");
    assert.equal(await again.done, "4");
  });
});
