import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ReadAhead } from "./read-ahead.ts";

test("a sequential reader is read ahead for more and more, up to a bound", () => {
  const ahead = new ReadAhead();
  const windows = Array.from({ length: 8 }, (_, piece) => ahead.next(piece, piece + 1) - (piece + 1));
  assert.deepEqual(windows, [0, 1, 2, 4, 8, 16, 16, 16]);
});

test("random reads are not read ahead for", () => {
  const ahead = new ReadAhead();
  for (const piece of [500, 20, 900, 333, 1, 700]) assert.equal(ahead.next(piece, piece + 1), piece + 1);
});

test("a reader that skips within what was read ahead is read ahead for less", () => {
  const ahead = new ReadAhead();
  for (let piece = 0; piece < 6; piece++) ahead.next(piece, piece + 1);
  // 16 pieces ahead of 6, then a skip to 12: half of that ahead of 13 would be less than what is on its way.
  assert.equal(ahead.next(12, 13), 22);
  assert.equal(ahead.next(20, 21), 25);
});

test("several sequential readers of one blob do not disturb each other", () => {
  const ahead = new ReadAhead();
  for (let step = 0; step < 5; step++)
    for (const start of [0, 1_000, 2_000]) ahead.next(start + step, start + step + 1);
  for (const start of [0, 1_000, 2_000]) assert.equal(ahead.next(start + 5, start + 6), start + 6 + 16);
});

test("what is read ahead never ends before the read, and never goes further than the bound", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(200), fc.integer({ min: 1, max: 4 }))), (reads) => {
      const ahead = new ReadAhead();
      for (const [first, length] of reads) {
        const end = ahead.next(first, first + length);
        assert.ok(end >= first + length && end <= first + length + 32);
      }
    }),
  );
});
