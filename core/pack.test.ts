import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonical, pack, unpack } from "#core/pack.ts";

const leaf = fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.constant(null), fc.uint8Array());
const value = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaf,
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(fc.string({ maxLength: 5 }), tie("value"), { maxKeys: 4 }),
    fc.dictionary(fc.stringMatching(/^\$*bytes$/), tie("value"), { maxKeys: 2 }),
  ),
})).value;

test("any value of the contracts comes back from JSON as it was", () => {
  fc.assert(
    fc.property(value, (original) => {
      assert.equal(canonical(unpack(JSON.parse(JSON.stringify(pack(original))))), canonical(original));
    }),
  );
});

test("an object that looks like bytes stays an object", () => {
  for (const value of [{ $bytes: "QQ==" }, { $$bytes: "QQ==" }, { a: { $bytes: {} } }]) {
    assert.deepEqual(unpack(JSON.parse(JSON.stringify(pack(value)))), value);
  }
});

test("buffers become plain bytes, undefined fields disappear", () => {
  assert.deepEqual(unpack(pack({ a: Buffer.from("x"), b: undefined })), { a: new Uint8Array([0x78]) });
});

test("the order of keys does not matter to what is canonical", () => {
  assert.equal(canonical({ a: 1, b: { d: [1], c: 2 } }), canonical({ b: { c: 2, d: [1] }, a: 1 }));
  assert.notEqual(canonical({ a: [1, 2] }), canonical({ a: [2, 1] }));
});

test("a key that names the prototype stays a key", () => {
  const hostile: unknown = JSON.parse('{"__proto__": {"polluted": true}}');
  assert.equal(Object.hasOwn(unpack(hostile) as object, "__proto__"), true);
  assert.equal(Reflect.get({}, "polluted"), undefined);
});
