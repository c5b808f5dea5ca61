import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PieceSet } from "./pieces.ts";

test("a set of pieces is a set, whatever is added in whatever order, and survives a file", () => {
  const cases = fc.tuple(fc.integer({ min: 1, max: 900 }), fc.array(fc.nat(100)), fc.nat(1_000), fc.nat(1_000));
  fc.assert(
    fc.property(cases, ([sizeBytes, wanted, offset, length]) => {
      const pieces = new PieceSet(sizeBytes, 7);
      const model = new Set(wanted.map((piece) => piece % pieces.count));
      for (const piece of model) assert.equal(pieces.add(piece), true);
      for (const piece of model) assert.equal(pieces.add(piece), false);
      for (const piece of model)
        assert.deepEqual([pieces.remove(piece), pieces.remove(piece), pieces.add(piece)], [true, false, true]);
      const copy = new PieceSet(sizeBytes, 7);
      copy.load(pieces.copy());
      const all = Array.from({ length: copy.count }, (_, piece) => piece);
      assert.deepEqual(
        all.filter((piece) => copy.has(piece)),
        all.filter((piece) => model.has(piece)),
      );
      assert.equal(copy.present, model.size);
      assert.equal(copy.isComplete, model.size === copy.count);
      const touched = all.filter((piece) => piece * 7 < offset + length && piece * 7 + 7 > offset && length > 0);
      assert.equal(
        copy.hasRange(offset, length),
        touched.every((piece) => model.has(piece)),
      );
      assert.equal(
        all.reduce((sum, piece) => sum + copy.bytesOf(piece), 0),
        sizeBytes,
      );
    }),
  );
});

test("two sets on the same memory are one, and bits behind the end count for nothing", () => {
  const one = new PieceSet(10, 1);
  const other = new PieceSet(10, 1, one.bits.buffer);
  other.add(9);
  assert.equal(one.has(9), true);
  one.load(Buffer.from([0xff, 0xff, 0xff]));
  assert.equal(other.present, 10);
});
