import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkExports } from "./check-exports.ts";
import { treeOf } from "./tree.ts";

function check(text: string, path = "a.ts"): string[] {
  return checkExports(treeOf({ [path]: text })).map(({ line, message }) => `${line} ${message}`);
}

describe("checkExports", () => {
  const taken: readonly (readonly [string, string])[] = [
    ["a documented function", "/** Says a. */\nexport function a(): void {}\n"],
    ["a comment over several lines", "/**\n * Says a.\n */\nexport const a = 1;\n"],
    [
      "a directive between comment and export",
      "/** Says a. */\n// biome-ignore format: a table\nexport const a = 1;\n",
    ],
    [
      "a type taken from the constant above",
      "/** Says a. */\nexport const A = [1];\nexport type A = (typeof A)[number];\n",
    ],
    [
      "a constant of several lines and its type",
      "/** A. */\nexport const A = {\n  a: 1,\n};\nexport type A = typeof A;\n",
    ],
    ["what is not exported", "function a(): void {}\n"],
    ["a re-export by name", 'export { a } from "./b.ts";\n'],
  ];
  for (const [what, text] of taken) test(`takes ${what}`, () => assert.deepEqual(check(text), []));

  const missing = (line: number) => [`${line} a has no doc comment: say what it promises`];
  test("refuses an export without a comment", () =>
    assert.deepEqual(check("export function a(): void {}\n"), missing(1)));
  test("refuses a comment that is not for documentation", () =>
    assert.deepEqual(check("// a\nexport const a = 1;\n"), missing(2)));
  test("refuses a comment of something else", () => {
    assert.deepEqual(
      check("/** Says b. */\nconst b = 1;\n\nexport interface a {\n  /** A. */\n  c: 1;\n}\n"),
      missing(4),
    );
  });
  test("asks no documentation of tests", () => assert.deepEqual(check("export const a = 1;\n", "a.test.ts"), []));

  test("refuses default exports, export * and module state", () => {
    assert.equal(check("export default 1;\n").length, 1);
    assert.equal(check('export * from "./b.ts";\n').length, 1);
    assert.equal(check("let count = 0;\n").length, 1);
    assert.deepEqual(check("function f() {\n  let count = 0;\n}\n"), []);
  });
});
