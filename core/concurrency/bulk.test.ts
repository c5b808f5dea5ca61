import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { join, separate } from "#core/concurrency/bulk.ts";

const bytes = fc.uint8Array({ maxLength: 40 });
const leaf = fc.oneof(bytes, fc.string(), fc.integer(), fc.boolean(), fc.constant(null));
const value = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    leaf,
    fc.array(tie("value")),
    fc.dictionary(fc.stringMatching(/^[a-z]+$/), tie("value")),
    fc.dictionary(fc.stringMatching(/^\$*bulk$/), tie("value"), { maxKeys: 2 }),
  ),
})).value;

test("a value comes out as it went in", () => {
  fc.assert(
    fc.property(value, (given) => {
      const { value: plain, bytes: parts } = separate(given);
      const back = join(JSON.parse(JSON.stringify({ plain })).plain, Buffer.concat(parts));
      assert.deepEqual(normal(back), normal(given));
    }),
  );
});

test("bytes that are too few, too many or none are refused", () => {
  for (const [plain, size] of [
    [{ $bulk: 4 }, 3],
    [{ $bulk: 4 }, 5],
    [{ $bulk: -1 }, 0],
    [{ $bulk: "4" }, 4],
  ] as const) {
    assert.throws(() => join(plain, new Uint8Array(size)), { kind: "InvalidArgument" });
  }
});

function normal(given: unknown): unknown {
  if (given instanceof Uint8Array) return { bytes: [...given] };
  if (Array.isArray(given)) return given.map(normal);
  if (typeof given !== "object" || given === null) return given;
  return Object.fromEntries(Object.entries(given).map(([key, field]) => [key, normal(field)]));
}
