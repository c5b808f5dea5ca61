import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkEscapes } from "./check-escapes.ts";
import { treeOf } from "./tree.ts";

function count(text: string, path = "a.ts"): number {
  return checkEscapes(treeOf({ [path]: text })).length;
}

describe("checkEscapes", () => {
  // In pieces, because this file is checked as well.
  const refused = [
    `// ${"TO"}DO: later`,
    `/* ${"FIX"}ME */`,
    "// not implemen" + "ted",
    `// @ts-${"ignore"}`,
    `// biome-${"ignore"} lint/suspicious/noExplicitAny: because`,
    `// biome-${"ignore"} lint/style/useConst`,
    `// Copyright ${"(c)"} somebody`,
    "const a: any = 1;",
    "const a: any[] = [];",
    "const a = b as any;",
    "f<any>(1);",
    "const a: Map<string, any> = b;",
    "const a = b as unknown as C;",
    'test.only("x", f);',
    'test.skip("x", f);',
    "test(name, { skip: true }, f);",
    "t.skip();",
  ];
  for (const text of refused) test(`refuses ${text}`, () => assert.equal(count(text), 1));

  const taken = [
    "AbortSignal.any([a]);",
    "const message = 'any';",
    "// any of these",
    "const todos = 1;",
    "test(name, { skip: reason }, f);",
    't.skip("no /dev/kvm");',
    `// biome-${"ignore"} format: a table is read by column`,
    "a as unknown;",
  ];
  for (const text of taken) test(`takes ${text}`, () => assert.equal(count(text), 0));

  test("reads C comments and leaves C words alone", () => {
    assert.equal(count(`/* ${"TO"}DO */ int any;`, "a.c"), 1);
  });
});
