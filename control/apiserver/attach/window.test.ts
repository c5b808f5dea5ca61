import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Window } from "./window.ts";

const NEVER = new AbortController().signal;

test("any course of output, gaps and acknowledgements: never more than the window is under way, and nothing stands still", async () => {
  const chunk = fc.record({ gap: fc.constantFrom(0, 0, 0, 7, 1000), length: fc.integer({ min: 1, max: 100 }) });
  await fc.assert(
    fc.asyncProperty(
      fc.nat(1000),
      fc.array(chunk, { maxLength: 40 }),
      fc.integer({ min: 100, max: 300 }),
      async (start, chunks, bytes) => {
        const window = new Window(start, bytes);
        // The client reads in order, and only when the server waits.
        const underWay: { offset: number; length: number }[] = [];
        let offset = start;
        for (const { gap, length } of chunks) {
          offset += gap;
          let waiting = true;
          const room = window.room(offset, length, NEVER).then(() => {
            waiting = false;
          });
          await new Promise(setImmediate);
          while (waiting) {
            const read = underWay.shift();
            assert.ok(read !== undefined, "the server waits for nothing");
            window.acknowledge(read.offset + read.length);
            await new Promise(setImmediate);
          }
          await room;
          underWay.push({ offset, length });
          assert.ok(underWay.reduce((sum, each) => sum + each.length, 0) <= bytes);
          offset += length;
        }
      },
    ),
    { numRuns: 50 },
  );
});

test("an acknowledgement of what was never sent gives no more room than a true one", async () => {
  const window = new Window(0, 100);
  await window.room(0, 100, NEVER);
  window.acknowledge(1_000_000);
  await window.room(100, 100, NEVER);
  const stop = new AbortController();
  const room = window.room(200, 1, stop.signal);
  stop.abort(new Error("it waits"));
  await assert.rejects(room, /it waits/);
});
