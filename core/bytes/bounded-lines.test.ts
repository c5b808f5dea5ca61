import assert from "node:assert/strict";
import { test } from "node:test";
import { array, assert as check, integer, property, string } from "fast-check";
import { BoundedLines } from "./bounded-lines.ts";

test("lines come out as they went in, however their bytes were cut", () => {
  const line = string({ maxLength: 30, unit: "grapheme" }).map((text) => text.replaceAll("\n", " "));
  check(
    property(array(line), integer({ min: 1, max: 7 }), (lines, step) => {
      const reader = new BoundedLines(1_000);
      const bytes = Buffer.from(lines.map((text) => `${text}\n`).join(""));
      const read: string[] = [];
      for (let at = 0; at < bytes.length; at += step) read.push(...(reader.push(bytes.subarray(at, at + step)) ?? []));
      assert.deepEqual(read, lines);
    }),
  );
});

test("a line beyond the limit ends it, whole or not", () => {
  assert.deepEqual(new BoundedLines(3).push(Buffer.from("abc\n")), ["abc"]);
  assert.equal(new BoundedLines(3).push(Buffer.from("abcd\n")), undefined);
  const reader = new BoundedLines(3);
  assert.deepEqual(reader.push(Buffer.from("ab")), []);
  assert.equal(reader.push(Buffer.from("cd")), undefined);
});
