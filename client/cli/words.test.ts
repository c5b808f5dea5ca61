import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { bytesOrText, wordsOf } from "./words.ts";

const lossy = (bytes: Uint8Array) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
const raw = (words: readonly Uint8Array[]) => Buffer.concat(words.flatMap((word) => [word, Uint8Array.of(0)]));

describe("the words of a command line", () => {
  test("come back byte for byte, whatever they are", () => {
    const word = fc.oneof(
      fc.uint8Array({ min: 1, max: 255, maxLength: 12 }),
      fc.string({ unit: "grapheme" }).map((text) => new TextEncoder().encode(text.replaceAll("\0", ""))),
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 5 }), (words) => {
        const process = [Buffer.from("node"), Buffer.from([0xfe]), ...words];
        const got = wordsOf(words.map(lossy), () => raw(process)).map(bytesOrText);
        assert.deepEqual(
          got.map((one) => Buffer.from(one)),
          words.map((one) => Buffer.from(one)),
        );
      }),
    );
  });

  test("that are UTF-8 stay texts, and nothing is looked up for them", () => {
    const words = ["plain", "ü€😀", "\ufeffmark"];
    const none = () => assert.fail("looked up");
    assert.equal(wordsOf(words, none), words);
    assert.deepEqual(words.map(bytesOrText), words);
  });

  test("that really hold the replacement character keep it", () => {
    const words = wordsOf(["\ufffd"], () => raw([Buffer.from("\ufffd")]));
    assert.deepEqual(words.map(bytesOrText), ["\ufffd"]);
  });
});
