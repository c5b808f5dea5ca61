import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ReadAhead } from "./read-ahead.ts";

const nothing = () => false;
const everything = () => true;

test("a reader that waits for each piece is read ahead for more and more, up to a bound", () => {
  const ahead = new ReadAhead();
  const ends = Array.from(
    { length: 8 },
    (_, piece) => (ahead.next(piece, piece + 1, nothing)?.end ?? piece + 1) - piece - 1,
  );
  assert.deepEqual(ends, [0, 1, 2, 4, 8, 16, 16, 16]);
});

test("a sequential reader that tells of the marks never waits again, and always has a window on the way", () => {
  const ahead = new ReadAhead();
  let [known, mark, waits] = [0, -1, 0];
  const onTheWay: number[] = [];
  for (let piece = 0; piece < 200; piece++) {
    if (piece >= known) waits += 1;
    if (piece < known && piece !== mark) continue;
    const found = ahead.next(piece, piece + 1, (other) => other < piece);
    known = Math.max(known, piece + 1, found?.end ?? 0);
    mark = found?.first ?? -1;
    onTheWay.push(known - piece - 1);
  }
  assert.equal(waits, 2);
  assert.ok(onTheWay.slice(5).every((pieces) => pieces === 16));
});

test("random reads are not read ahead for", () => {
  const ahead = new ReadAhead();
  for (const piece of [500, 20, 900, 333, 1, 700]) assert.equal(ahead.next(piece, piece + 1, nothing), undefined);
});

test("a reader that skips within what was read ahead is read ahead for less", () => {
  const ahead = new ReadAhead();
  for (let piece = 0; piece < 6; piece++) ahead.next(piece, piece + 1, nothing);
  // 16 pieces ahead of 6, then a skip to 12: half of that ahead of 13 would be less than what is on its way.
  assert.equal(ahead.next(12, 13, nothing), undefined);
  assert.deepEqual(ahead.next(20, 21, nothing), { first: 22, end: 25 });
});

test("one that was somewhere between without waiting has not skipped", () => {
  const ahead = new ReadAhead();
  for (let piece = 0; piece < 6; piece++) ahead.next(piece, piece + 1, nothing);
  assert.deepEqual(ahead.next(12, 13, everything), { first: 22, end: 29 });
});

test("several sequential readers of one blob do not disturb each other", () => {
  const ahead = new ReadAhead();
  for (let step = 0; step < 5; step++)
    for (const start of [0, 1_000, 2_000]) ahead.next(start + step, start + step + 1, nothing);
  for (const start of [0, 1_000, 2_000]) assert.equal(ahead.next(start + 5, start + 6, nothing)?.end, start + 6 + 16);
});

test("what is read ahead comes behind the read, once, and never goes further than the bound", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(200), fc.integer({ min: 1, max: 4 }), fc.boolean())), (reads) => {
      const ahead = new ReadAhead();
      for (const [first, length, wasRead] of reads) {
        const found = ahead.next(first, first + length, () => wasRead);
        if (found === undefined) continue;
        assert.ok(found.first >= first + length && found.first < found.end && found.end <= first + length + 16);
      }
    }),
  );
});
