import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { pathMatcher } from "./patterns.ts";

test("patterns match by name anywhere, by path from the root, and with wildcards", () => {
  const cases: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ["node_modules", ["node_modules", "a/node_modules"], ["node_modules2", "node_modules/a", ""]],
    ["*.pyc", ["a.pyc", "x/y/.pyc"], ["a.pyco", "a.pyc/x"]],
    ["/tmp", ["tmp"], ["a/tmp"]],
    ["tmp/", ["tmp", "a/tmp"], []],
    ["tmp/*", ["tmp/a"], ["tmp", "tmp/a/b"]],
    ["tmp/**", ["tmp/a", "tmp/a/b", "tmp"], ["a/tmp/b"]],
    ["**/.ssh/id_*", [".ssh/id_", "root/.ssh/id_rsa"], ["root/.ssh/x/id_rsa", "id_rsa"]],
    ["a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/x", "b"]],
    ["a?c", ["abc"], ["ac", "abbc"]],
    ["caf\u00e9", [Buffer.from("caf\u00e9").toString("latin1")], ["cafe"]],
  ];
  for (const [pattern, yes, no] of cases) {
    const match = pathMatcher([pattern]);
    for (const path of yes) assert.equal(match(path.split("/")), true, `${pattern} ${path}`);
    for (const path of no) assert.equal(match(path === "" ? [] : path.split("/")), false, `${pattern} ${path}`);
  }
});

test("a pattern that can match nothing is refused", () => {
  for (const pattern of ["", "/", "./.", "..", "a/../b", "a\0", "a".repeat(1025)]) {
    assert.throws(() => pathMatcher([pattern]), { kind: "InvalidArgument", details: { field: "exclude" } });
  }
});

test("patterns that are too long together are refused", () => {
  const patterns = (count: number) => Array.from({ length: count }, () => "a".repeat(1_024));
  pathMatcher(patterns(15));
  assert.throws(() => pathMatcher(patterns(17)), { kind: "InvalidArgument", message: /too long together/ });
});

test("wildcards match what regular expressions match, whatever was asked before", () => {
  const name = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 4 });
  const part = fc.oneof(
    fc.constant("**"),
    fc.string({ unit: fc.constantFrom("a", "b", "*", "?"), minLength: 1, maxLength: 4 }),
  );
  const paths = fc.array(name, { minLength: 1, maxLength: 5 });
  const patterns = fc.array(part, { minLength: 2, maxLength: 5 });
  fc.assert(
    fc.property(fc.array(patterns, { minLength: 1, maxLength: 3 }), fc.array(paths), (some, asked) => {
      const match = pathMatcher(some.map((pattern) => pattern.join("/")));
      const expressions = some.map((pattern) => new RegExp(`^${pattern.map(partExpression).join("")}$`));
      for (const path of asked) {
        const text = path.map((one) => `/${one}`).join("");
        assert.equal(
          match(path),
          expressions.some((expression) => expression.test(text)),
        );
      }
    }),
    { numRuns: 2_000 },
  );
});

test("a walk goes as deep as a sandbox likes under patterns that nearly match", () => {
  const names = Array.from({ length: 200 }, () => "a".repeat(255));
  const match = pathMatcher(Array.from({ length: 16 }, (_, index) => `**/*${"a".repeat(127)}b/x${index}*`));
  // To look at all names above each directory anew would take minutes.
  for (const depth of names.keys()) assert.equal(match(names.slice(0, depth + 1)), false);
});

/** Every name with the `/` before it. */
function partExpression(part: string): string {
  if (part === "**") return "(?:/[^/]*)*";
  return `/${part.replaceAll("*", "[^/]*").replaceAll("?", "[^/]")}`;
}
