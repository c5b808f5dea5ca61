import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { functionsOf } from "./functions.ts";
import { treeOf } from "./tree.ts";

function measure(path: string, text: string): string[] {
  const file = treeOf({ [path]: text }).files[0];
  assert.ok(file);
  return functionsOf(file).map(
    ({ name, line, lines, isSuite }) => `${name} ${line} ${lines}${isSuite ? " suite" : ""}`,
  );
}

describe("functionsOf TypeScript", () => {
  const cases: readonly (readonly [string, string, readonly string[]])[] = [
    ["a function", "function f(a: number): void {\n}", ["f 1 2"]],
    ["arguments over several lines", "function f(\n  a: number,\n) {\n  g();\n}", ["f 1 5"]],
    ["a return type with braces", "function f(): { a: number } {\n}", ["f 1 2"]],
    ["a return type with generics and unions", "function f(): Promise<A<B>> | undefined {\n}", ["f 1 2"]],
    ["a return type with a type guard", "function f(x: unknown): x is { a: 1 } {\n}", ["f 1 2"]],
    ["a return type of a function", "function f(): (a: number) => void {\n}", ["f 1 2"]],
    [
      "a method and an accessor",
      "class A {\n  async #m() {\n  }\n  get x(): number {\n    return 1;\n  }\n}",
      ["#m 2 2", "x 4 3"],
    ],
    ["an arrow function with a block", "const f = async (a) => {\n  g();\n};", ["f 1 3"]],
    ["an arrow function as argument", "g(1, () => {\n});", ["anonymous 1 2"]],
    ["a default that is an object", "function f(a = { b: 1 }) {\n}", ["f 1 2"]],
    ["no control flow", "if (a) {\n} else for (;;) {\n} switch (b) {\n} while (c) {\n}", []],
    ["no catch clause", "try {\n} catch (error) {\n}", []],
    ["no conditional expression", "const a = f() ? g() : { b: 1 };", []],
    ["no braces in strings and comments", 'f("() => {"); // () => {', []],
    [
      "calls by names that every object has",
      "function f() {\n  a.toString();\n}\nfunction g() {\n}",
      ["f 1 3", "g 4 2"],
    ],
    ["an overload only once", "function f(a: 1): void;\nfunction f(a: 2): void {\n}", ["f 2 2"]],
    [
      "describe as a suite",
      'describe("x", () => {\n  test("y", () => {\n  });\n});',
      ["anonymous 2 2", "anonymous 1 4 suite"],
    ],
    [
      "a function that only describes as a suite",
      "function c(name: string): void {\n  describe(name, () => {});\n}",
      ["anonymous 2 1", "c 1 3 suite"],
    ],
  ];
  for (const [what, text, expected] of cases) {
    test(`finds ${what}`, () => assert.deepEqual(measure("a.ts", text).sort(), [...expected].sort()));
  }
});

describe("functionsOf C", () => {
  test("counts from the name to the closing brace", () => {
    assert.deepEqual(measure("a.c", "static int f(int a,\n             int b)\n{\n\tif (a) {\n\t}\n\treturn b;\n}\n"), [
      "f 1 7",
    ]);
  });
  test("takes no initialiser and no type for a function", () => {
    assert.deepEqual(measure("a.c", "struct a {\n};\nstatic int b[] = {\n1 };\n#define X(a) {\n}\n".slice(0, 40)), []);
  });
  test("takes several functions apart", () => {
    assert.deepEqual(measure("a.c", "int f(void) { return 1; }\nint g(int a)\n{\n}\n"), ["f 1 1", "g 2 3"]);
  });
});

test("functionsOf Python counts to the dedent, trailing blank lines left out", () => {
  assert.deepEqual(
    measure(
      "a.py",
      "class A:\n    def f(\n        self,\n    ):\n        pass\n\n    def g(self):\n        pass\n\n\nx = 1\n",
    ),
    ["f 2 4", "g 7 2"],
  );
});
