import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { NOTICED_MS, Watchdog } from "./watchdog.ts";

function setUp() {
  const clock = new ManualClock();
  const seen = { asked: 0, hangs: 0 };
  const watchdog = new Watchdog({
    clock,
    ask: () => {
      seen.asked += 1;
    },
    onHang: () => {
      seen.hangs += 1;
    },
  });
  return { clock, seen, watchdog };
}

test("a process that answers is asked on and on", () => {
  const { clock, seen, watchdog } = setUp();
  for (let round = 1; round <= 50; round++) {
    while (seen.asked < round) clock.advance(100);
    watchdog.answered();
  }
  assert.equal(seen.hangs, 0);
});

test("one that stops to answer is told of once, and asked no more", () => {
  const { clock, seen, watchdog } = setUp();
  while (seen.asked === 0) clock.advance(100);
  watchdog.answered();
  clock.advance(NOTICED_MS - 100);
  assert.equal(seen.hangs, 0);
  clock.advance(100);
  assert.equal(seen.hangs, 1);
  const { asked } = seen;
  clock.advance(100 * NOTICED_MS);
  assert.deepEqual([seen.hangs, seen.asked], [1, asked]);
});

test("one that never answered gets longer, and not for ever", () => {
  const { clock, seen } = setUp();
  clock.advance(2 * NOTICED_MS);
  assert.equal(seen.hangs, 0);
  clock.advance(2 * NOTICED_MS);
  assert.equal(seen.hangs, 1);
});

test("nothing is asked once it is disposed", () => {
  const { clock, seen, watchdog } = setUp();
  watchdog[Symbol.dispose]();
  clock.advance(100 * NOTICED_MS);
  assert.deepEqual(seen, { asked: 0, hangs: 0 });
});
