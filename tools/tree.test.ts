import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { formatProblem, isTestCode, lineAt, readTree } from "./tree.ts";

test("readTree reads text, knows other files and skips what is installed or built", (t) => {
  const root = mkdtempSync(join(tmpdir(), "tree-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "core"));
  mkdirSync(join(root, "node_modules"));
  writeFileSync(join(root, "core/a.ts"), "a");
  writeFileSync(join(root, "core/b.png"), "b");
  writeFileSync(join(root, "node_modules/c.ts"), "c");
  symlinkSync("gone", join(root, "link.ts"));
  const tree = readTree(root);
  assert.deepEqual(
    tree.files.map(({ path }) => path),
    ["core/a.ts"],
  );
  assert.equal(tree.get("core/a.ts")?.text, "a");
  assert.deepEqual(["core", "core/b.png", "node_modules/c.ts", "core/c.ts"].map(tree.has), [true, true, false, false]);
});

test("lineAt counts from one", () => {
  assert.deepEqual(
    [0, 1, 2, 4].map((offset) => lineAt("a\nb\nc", offset)),
    [1, 1, 2, 3],
  );
});

test("isTestCode knows tests, suites and what only they use", () => {
  const paths = [
    "a.test.ts",
    "core/a-suite.ts",
    "tests/a.ts",
    "host/testdata/a.c",
    "core/testing.ts",
    "core/a.ts",
    "tools/tests.ts",
  ];
  assert.deepEqual(paths.map(isTestCode), [true, true, true, true, true, false, false]);
});

test("formatProblem prints what editors jump to", () => {
  assert.equal(formatProblem({ path: "a.ts", line: 3, rule: "r", message: "m" }), "a.ts:3: r: m");
});
