import assert from "node:assert/strict";
import { test } from "node:test";
import { filmFrames } from "./frames.ts";

/** Pictures that are numbers, and what a film of them shows. */
async function film(options: Parameters<typeof filmFrames>[1], stopAt = Number.POSITIVE_INFINITY) {
  let taken = 0;
  const shown: number[] = [];
  const take = async () => ({ png: Uint8Array.of(taken++), settled: true });
  for await (const [number = -1] of filmFrames(take, options)) {
    shown.push(number);
    if (shown.length === stopAt) break;
  }
  return { taken, shown };
}

test("a film has a picture for each of its moments, in order; a late one stands for those that it missed", async () => {
  const { taken, shown } = await film({ framesPerSecond: 30, durationMs: 500 });
  assert.equal(shown.length, 15);
  assert.deepEqual(
    shown,
    shown.toSorted((a, b) => a - b),
  );
  assert.equal(new Set(shown).size, taken);
});

test("a film without an end goes on until nobody looks, or the signal fires", async () => {
  assert.equal((await film({ framesPerSecond: 30 }, 4)).shown.length, 4);
  await assert.rejects(film({ framesPerSecond: 1, signal: AbortSignal.abort(new Error("left")) }), /left/);
});

test("a rate that is none is refused before a picture is taken", async () => {
  for (const framesPerSecond of [0, -1, 31, Number.NaN]) await assert.rejects(film({ framesPerSecond }), RangeError);
});
