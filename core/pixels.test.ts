import assert from "node:assert/strict";
import { test } from "node:test";
import { differMore, type Pixels } from "./pixels.ts";

/** Ten by ten points, all of one colour but for the first ones. */
function screen(changed: number, size = { width: 10, height: 10 }): Pixels {
  const rgb = Buffer.alloc(3 * size.width * size.height, 7);
  // One byte of a point is enough for it to be another.
  for (let point = 0; point < changed; point += 1) rgb[3 * point + (point % 3)] = 8;
  return { ...size, rgb };
}

test("pictures differ by the share of points that are not the same, whatever of a point is not", () => {
  assert.equal(differMore(screen(0), screen(0), 0), false);
  assert.equal(differMore(screen(0), screen(1), 0), true);
  assert.equal(differMore(screen(0), screen(5), 0.05), false);
  assert.equal(differMore(screen(0), screen(6), 0.05), true);
  assert.equal(differMore(screen(6), screen(0), 0.05), true);
  assert.equal(differMore(screen(0), screen(100), 1), false);
});

test("pictures of different sizes differ, whatever share is allowed", () => {
  assert.equal(differMore(screen(0), screen(0, { width: 20, height: 5 }), 1), true);
});
