import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { textOrBytes } from "./bytes.ts";
import { jsonPieces } from "./json-pieces.ts";

const leaf = fc.oneof(fc.uint8Array(), fc.string(), fc.double(), fc.boolean(), fc.constant(null));
const value = fc.letrec((tie) => ({
  value: fc.oneof({ depthSize: "small" }, leaf, fc.array(tie("value")), fc.dictionary(fc.string(), tie("value"))),
})).value;
const joined = (given: unknown) => Buffer.concat([...jsonPieces(given)]).toString();

/** What the same value is as one text. */
function plain(given: unknown): unknown {
  if (given instanceof Uint8Array) return textOrBytes(given);
  if (Array.isArray(given)) return given.map(plain);
  if (typeof given !== "object" || given === null) return given;
  return Object.fromEntries(Object.entries(given).map(([key, field]) => [key, plain(field)]));
}

test("pieces are together what JSON is in one", () => {
  fc.assert(fc.property(value, (given) => assert.equal(joined(given), JSON.stringify(plain(given)))));
  assert.equal(joined({ a: undefined, b: [] }), '{"b":[]}');
});

test("long text is cut between characters, long bytes between threes, and no piece is large", () => {
  for (const unit of ["ä", "€", "x€", "😀", "x😀", "\0"]) {
    const text = unit.repeat(100_000);
    const pieces = [...jsonPieces({ text: Buffer.from(text) })];
    assert.equal(JSON.parse(Buffer.concat(pieces).toString()).text, text);
    assert.ok(pieces.every(({ length }) => length < 1024 * 1024));
  }
  const bytes = Buffer.alloc(200_000, 0xff);
  assert.deepEqual(JSON.parse(joined({ bytes })), { bytes: { base64: bytes.toString("base64") } });
});
