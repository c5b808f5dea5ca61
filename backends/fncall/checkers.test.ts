import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { accepts } from "./checkers.ts";

const bytes = (text: string) => Buffer.from(text);
const numbers = (tolerance: number) => ({ type: "numbers", tolerance }) as const;

test("exact wants the same bytes", () => {
  assert.ok(accepts({ type: "exact" }, bytes("a\n"), bytes("a\n")));
  assert.ok(!accepts({ type: "exact" }, bytes("a\n"), bytes("a")));
});

test("tokens wants the same words, whatever is between them", () => {
  fc.assert(
    fc.property(
      fc.array(fc.stringMatching(/^[a-z0-9é]+$/)),
      fc.array(fc.constantFrom(" ", "\n", "\t", "\r\n"), { minLength: 1 }),
      (words, gap) => {
        const [expected, output] = [words.join(" "), `${gap.join("")}${words.join(gap.join(""))}${gap.join("")}`];
        assert.ok(accepts({ type: "tokens" }, bytes(expected), bytes(output)));
        assert.ok(!accepts({ type: "tokens" }, bytes(expected), bytes(`${output} more`)));
      },
    ),
  );
});

test("numbers may differ by the tolerance, absolutely or relatively, and no more", () => {
  assert.ok(accepts(numbers(1e-6), bytes("1 0.5 1e9"), bytes("1.0000001 .5 1000000500")));
  assert.ok(!accepts(numbers(1e-6), bytes("1"), bytes("1.00001")));
  assert.ok(!accepts(numbers(1e-6), bytes("a 1"), bytes("b 1")));
  assert.ok(!accepts(numbers(1), bytes("1"), bytes("0x1")));
});

test("infinities are equal by their sign, and what is no number is equal to itself", () => {
  assert.ok(accepts(numbers(0.1), bytes("inf -inf nan"), bytes("Infinity -INF NaN")));
  assert.ok(!accepts(numbers(1e300), bytes("inf"), bytes("-inf")));
  assert.ok(!accepts(numbers(1e300), bytes("nan"), bytes("1")));
  assert.ok(!accepts(numbers(1e300), bytes("1"), bytes("inf")));
});
