import assert from "node:assert/strict";
import { test } from "node:test";
import { checkSizes, checkTypicalSizes, reportSizes } from "./check-sizes.ts";
import { treeOf } from "./tree.ts";

const lines = (count: number) => "x;\n".repeat(count);
const body = (count: number) => `function f() {\n${lines(count - 2)}}\n`;

test("a file may have 400 lines, not 401", () => {
  const problems = checkSizes(treeOf({ "a.ts": lines(400), "b.c": lines(401), "c.md": lines(900) }));
  assert.deepEqual(
    problems.map(({ path }) => path),
    ["b.c"],
  );
});

test("a function may have 60 lines, not 61, unless it is a suite", () => {
  const suite = `describe("x", () => {\n${lines(100)}test("y", f);\n});\n`;
  const problems = checkSizes(treeOf({ "a.ts": body(60), "b.ts": body(61), "c.test.ts": suite }));
  assert.deepEqual(
    problems.map(({ path, message }) => `${path} ${message}`),
    ["b.ts f has 61 lines, over 60: split it"],
  );
});

test("a script without an ending is measured", () => {
  assert.equal(checkSizes(treeOf({ run: `#!/bin/sh\n${lines(400)}` })).length, 1);
});

test("the typical file is held to its bound, tests left out", () => {
  const big = Object.fromEntries([1, 2, 3].map((index) => [`${index}.ts`, lines(200)]));
  assert.deepEqual(
    checkTypicalSizes(treeOf(big)).map(({ message }) => message),
    ["the median file is 200 lines, over 120"],
  );
  assert.deepEqual(checkTypicalSizes(treeOf({ "a.ts": lines(10), "b.test.ts": lines(300) })), []);
});

test("reportSizes counts lines of tests against lines of source", () => {
  assert.equal(reportSizes(treeOf({ "a.ts": lines(10), "a.test.ts": lines(15) })).testRatio, 1.5);
});
