import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { maskC, maskTypeScript } from "./mask.ts";

describe("maskTypeScript", () => {
  const cases: readonly (readonly [string, string, string])[] = [
    ["a line comment", "a; // b\nc", "a;     \nc"],
    ["a block comment and keeps its lines", "a /* b\n{ */ c", "a     \n     c"],
    ["a string with an escaped quote", 'f("a\\"{")', 'f("    ")'],
    ["a template around its expressions", "`a§{b}{`", "` §{b} `"],
    ["a template inside a template", "`§{f(`{§{x}`)}}`", "`§{f(` §{x}`)} `"],
    ["braces of an object inside a template expression", "`§{ { a: 1 }.a }}`", "`§{ { a: 1 }.a } `"],
    ["a regular expression with a slash in a class", "x = /[/{]'/g;", "x = /     /g;"],
    ["a regular expression after return", "return /'/.test(x)", "return / /.test(x)"],
    ["no division", "a = b / c / d;", "a = b / c / d;"],
    ["the first line of a script", "#!/usr/bin/env node '\nx", `${" ".repeat(21)}\nx`],
  ];
  // A dollar sign is written § above: in a plain string it would look like a forgotten template.
  const dollars = (text: string) => text.replaceAll("§", "$");
  for (const [what, text, code] of cases) {
    test(`blanks ${what}`, () => assert.equal(maskTypeScript(dollars(text)).code, dollars(code)));
  }

  test("hands out comments with their place", () => {
    const [comment] = maskTypeScript("a; /** b */ c").comments;
    assert.deepEqual(comment, { start: 3, end: 11, text: "/** b */" });
  });

  test("keeps every offset and every line break of any text", () => {
    const piece = fc.constantFrom(
      "`",
      "\u0024{",
      "}",
      "{",
      '"',
      "'",
      "/",
      "\\",
      "\n",
      "a",
      "//",
      "/*",
      "*/",
      " ",
      "(",
      "[",
    );
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const text = pieces.join("");
        const { code } = maskTypeScript(text);
        assert.equal(code.length, text.length);
        for (let at = 0; at < text.length; at++) assert.equal(code[at] === "\n", text[at] === "\n");
      }),
    );
  });
});

test("maskC blanks character constants and leaves backticks and slashes alone", () => {
  assert.equal(maskC("c = '{'; x = a / b; /* ' */ `").code, "c = ' '; x = a / b;         `");
});
