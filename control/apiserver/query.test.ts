import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FileReadQuery, SandboxQuery } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import { queryReader } from "./query.ts";

const readFile = queryReader(FileReadQuery);
const list = queryReader(SandboxQuery);

function encode(bytes: Uint8Array): string {
  return [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

test("every path that Linux allows arrives byte for byte", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (raw) => {
      const path = Buffer.concat([Buffer.from("/"), raw.map((byte) => (byte === 0 ? 1 : byte))]);
      assert.deepEqual(readFile(`/x?path=${encode(path)}`), Object.assign(Object.create(null), { path }));
    }),
  );
});

test("text that a browser or a form encodes arrives as it was", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 50 }), (value) => {
      const text = `a=${value}`;
      const expected = Object.assign(Object.create(null), { label: [text] });
      if (text.isWellFormed()) {
        assert.deepEqual(list(`/x?label=${encodeURIComponent(text)}`), expected);
        assert.deepEqual(list(`/x?${new URLSearchParams({ label: text })}`), expected);
      }
    }),
  );
});

test("any other query is read or refused as InvalidArgument, never worse", () => {
  const piece = fc.oneof(
    fc.constantFrom("path=", "/", "&", "=", "%", "%2", "%ff", "?", "+", "offset=", "__proto__", "1"),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      try {
        readFile(`/x?${pieces.join("")}`);
      } catch (error) {
        assert.ok(error instanceof SandboxError && error.kind === "InvalidArgument", String(error));
      }
    }),
    { numRuns: 500 },
  );
});

test("numbers and truth values have one spelling each way", () => {
  const read = (query: string) => ({ ...(readFile(`/x?path=/a&${query}`) as object) });
  assert.deepEqual(read("offset=10&length=0"), { path: Buffer.from("/a"), offset: 10, length: 0 });
  for (const bad of [
    "offset=",
    "offset=1.5",
    "offset=0x10",
    "offset=1e3",
    "offset=%31%20",
    "offset=99999999999999999999",
  ]) {
    assert.throws(() => read(bad), { kind: "InvalidArgument", message: /^offset must be/ }, bad);
  }
});

test("names that objects have by themselves are unknown keys like any other", () => {
  for (const name of ["__proto__", "constructor", "toString"]) {
    assert.throws(() => list(`/x?${name}=1`), { kind: "InvalidArgument", message: /unknown key/ });
  }
});
