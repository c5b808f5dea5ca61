import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BufferPool } from "#core/bytes/buffer-pool.ts";

describe("a pool of buffers", () => {
  test("gives one buffer out again after it came back, and never before", () => {
    const pool = new BufferPool(64 * 1024);
    const first = pool.take(64 * 1024);
    const second = pool.take(32 * 1024);
    assert.notEqual(first.buffer.buffer, second.buffer.buffer);
    first.done?.();
    const third = pool.take(9 * 1024);
    assert.equal(third.buffer.buffer, first.buffer.buffer);
    assert.notEqual(pool.take(9 * 1024).buffer.buffer, second.buffer.buffer);
  });

  test("keeps neither what is small nor what is longer than it was made for", () => {
    const pool = new BufferPool(64 * 1024);
    assert.equal(pool.take(100).done, undefined);
    const { buffer, done } = pool.take(100_000);
    assert.equal(done, undefined);
    assert.equal(buffer.length, 100_000);
  });

  test("keeps a bounded number, however many were out at once", () => {
    const pool = new BufferPool(8 * 1024);
    const out = Array.from({ length: 100 }, () => pool.take(8 * 1024));
    const known = new Set(out.map(({ buffer }) => buffer.buffer));
    for (const { done } of out) done?.();
    const again = Array.from({ length: 100 }, () => pool.take(8 * 1024));
    assert.equal(again.filter(({ buffer }) => known.has(buffer.buffer)).length, 32);
  });
});
