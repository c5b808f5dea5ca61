import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { reportSizes } from "./check-sizes.ts";
import { CHECKS } from "./checks.ts";
import { formatProblem, readTree } from "./tree.ts";

const tree = readTree(join(import.meta.dirname, ".."));

describe("the tree", () => {
  for (const [rule, check] of Object.entries(CHECKS)) {
    test(rule, () => assert.deepEqual(check(tree).map(formatProblem), []));
  }

  test("reports the sizes of its files and functions", (t) => {
    const { files, functions, testRatio } = reportSizes(tree);
    t.diagnostic(`${files.count} files: median ${files.median} lines, p90 ${files.p90}`);
    t.diagnostic(`${functions.count} functions: median ${functions.median} lines, p90 ${functions.p90}`);
    t.diagnostic(`test lines to source lines: ${testRatio.toFixed(2)}`);
    assert.ok(files.count > 0 && functions.count > 0);
  });
});
