import assert from "node:assert/strict";
import { test } from "node:test";
import { checkDead } from "./check-dead.ts";
import { treeOf } from "./tree.ts";

function check(texts: Readonly<Record<string, string>>): string[] {
  const manifest = '{"imports":{"#core/*":"./core/*"}}';
  return checkDead(treeOf({ "package.json": manifest, ...texts })).map(({ path, message }) => `${path} ${message}`);
}

test("a file that no entry point reaches is dead, also when its test does", () => {
  assert.deepEqual(
    check({
      "bin/node.ts": 'import "#core/a.ts"; new URL("./worker.ts", import.meta.url);',
      "bin/worker.ts": "",
      "core/a.ts": "",
      "core/b.ts": 'import "#core/c.ts";',
      "core/c.ts": "",
      "core/d.ts": "",
      "core/d.test.ts": 'import "#core/d.ts";',
    }),
    ["core/b.ts nothing uses this file", "core/c.ts nothing uses this file", "core/d.ts only tests use this file"],
  );
});

test("suites, helpers of tests and the fake backend live by tests alone", () => {
  const texts = {
    "core/a.test.ts": 'import "./a-suite.ts"; import "../tests/support/b.ts"; import "../backends/fake/c.ts";',
    "core/a-suite.ts": "",
    "tests/support/b.ts": "",
    "backends/fake/c.ts": "",
  };
  assert.deepEqual(check(texts), []);
});

test("an exported value that no other file names is dead, a type is not", () => {
  const texts = {
    "bin/node.ts": 'import { used } from "#core/a.ts";',
    "core/a.ts": "export const used = 1;\nexport const unused = 2;\nexport interface Unused {}\n",
  };
  assert.deepEqual(check(texts), ["core/a.ts no other file uses unused: do not export it"]);
});
