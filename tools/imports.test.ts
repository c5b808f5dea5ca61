import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { importsOf, resolveImport, subpathsOf } from "./imports.ts";
import { treeOf } from "./tree.ts";

function read(text: string): string[] {
  const file = treeOf({ "a.ts": text }).files[0];
  assert.ok(file);
  return importsOf(file).map(
    ({ specifier, line, typeOnly, form }) => `${line} ${form}${typeOnly ? " type" : ""} ${specifier}`,
  );
}

describe("importsOf", () => {
  const cases: readonly (readonly [string, string, readonly string[]])[] = [
    ["names", 'import { a, type B } from "x";', ["1 static x"]],
    ["a default and a namespace", 'import a from "x";\nimport * as b from "y";', ["1 static x", "2 static y"]],
    ["several lines", 'import {\n  a,\n  b,\n} from "x";', ["4 static x"]],
    ["types", 'import type { A } from "x";\nexport type { B } from "y";', ["1 static type x", "2 static type y"]],
    ["a side effect", 'import "x";', ["1 static x"]],
    ["a re-export", 'export { a } from "x";\nexport * from "y";', ["1 static x", "2 static y"]],
    ["a dynamic import", 'await import("x");', ["1 dynamic x"]],
    ["a worker's URL", 'new URL("./w.ts", import.meta.url)', ["1 url ./w.ts"]],
    ["nothing in comments and strings", '// import "x";\nf("import \'y\'");', []],
    ["nothing in a constant", 'export const a = "x";', []],
  ];
  for (const [what, text, expected] of cases) test(`finds ${what}`, () => assert.deepEqual(read(text), expected));
});

test("resolveImport follows relative paths, the map of package.json and nothing else", () => {
  const map = subpathsOf(
    treeOf({ "package.json": '{"imports":{"#core/*":"./core/*","#sdk":"./client/sdk/index.ts"}}' }),
  );
  assert.equal(resolveImport("./b.ts", "core/a.ts", map), "core/b.ts");
  assert.equal(resolveImport("../b.ts", "core/rpc/a.ts", map), "core/b.ts");
  assert.equal(resolveImport("#core/b.ts", "edge/a.ts", map), "core/b.ts");
  assert.equal(resolveImport("#sdk", "client/cli/a.ts", map), "client/sdk/index.ts");
  assert.equal(resolveImport("node:fs", "edge/a.ts", map), undefined);
  assert.equal(resolveImport("ws", "edge/a.ts", map), undefined);
});
