import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { constants, zstdCompressSync } from "node:zlib";
import fc from "fast-check";
import { canonicalJson, sha256Hex } from "../digest.ts";
import { type FrameTable, frameOf, framesBytes, parseTable, pieceLength, pieceOf, tableText } from "./frames.ts";
import { blobOf } from "./test-support/blobs.ts";

const BYTES = 600_000;
const { digest, descriptor } = blobOf(Buffer.alloc(BYTES, "some text"));
const TABLE: FrameTable = { sha256: sha256Hex("frames"), sizeBytes: BYTES, frames: [262_144, 20, 75_712] };

/** A table as its text would be, whatever it says. */
function textOf(table: unknown, tableSha256 = sha256Hex(canonicalJson(table)), version: unknown = 1): string {
  return canonicalJson({ version, table, tableSha256 });
}

test("any piece comes back out of its frame, and no frame is longer than its piece", async () => {
  const bytes = fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 5_000 }), fc.constantFrom(...samples()));
  await fc.assert(
    fc.asyncProperty(bytes, async (piece) => {
      const frame = await frameOf(piece);
      assert.ok(frame.length > 0 && frame.length <= piece.length);
      const found = await pieceOf(frame, piece.length);
      assert.ok(found !== undefined && Buffer.compare(found, piece) === 0);
    }),
    { numRuns: 60 },
  );
});

test("noise is kept as it is, and text in much less", async () => {
  const noise = randomBytes(262_144);
  assert.equal(await frameOf(noise), noise);
  assert.ok((await frameOf(Buffer.alloc(262_144, "some text"))).length < 1_000);
});

test("a frame that is cut off, too long, another's, or wants more memory than a piece has is no piece", async () => {
  const piece = Buffer.concat([randomBytes(100_000), Buffer.alloc(162_144, "text")]);
  const frame = Buffer.from(await frameOf(piece));
  const wide = zstdCompressSync(Buffer.concat([randomBytes(4 * 2 ** 20)]), {
    params: { [constants.ZSTD_c_windowLog]: 27 },
  });
  const wrong: readonly Buffer[] = [
    frame.subarray(0, -1),
    frame.subarray(0, 10),
    Buffer.alloc(10),
    randomBytes(1_000),
    zstdCompressSync(Buffer.alloc(2 ** 30)),
    zstdCompressSync(Buffer.alloc(piece.length - 1)),
    wide,
    wide.subarray(0, 200_000),
  ];
  const before = process.memoryUsage.rss();
  for (const bytes of wrong) assert.equal(await pieceOf(bytes, piece.length), undefined);
  // The one with a gigabyte in it alone would have taken that.
  assert.ok(process.memoryUsage.rss() - before < 2 ** 28);
});

test("a table says what it said, and is about one blob alone", () => {
  assert.deepEqual(parseTable(tableText(TABLE), digest, descriptor), TABLE);
  assert.equal(framesBytes(TABLE), 262_144 + 20 + 75_712);
  const other = blobOf(Buffer.alloc(BYTES + 1, "some text"));
  assert.throws(() => parseTable(tableText(TABLE), other.digest, other.descriptor), { kind: "Internal" });
});

test("a table that is cut off, lies or is not of this version is damage, and says so", () => {
  const text = tableText(TABLE);
  const [first = 0, second = 0, third = 0] = TABLE.frames;
  const lies: readonly unknown[] = [
    ...[[], [first, second], [first, second, third, 1]].map((frames) => ({ ...TABLE, frames })),
    // No longer than its piece, no shorter than a byte, and a number.
    ...[0, -1, 1.5, 262_145, 2 ** 53, 1e300, null, "20", [20]].map((length) => ({
      ...TABLE,
      frames: [first, length, third],
    })),
    // The last piece is shorter than the others.
    { ...TABLE, frames: [first, second, pieceLength(descriptor, 2) + 1] },
    ...[0, BYTES - 1, 2 ** 60, "600000"].map((sizeBytes) => ({ ...TABLE, sizeBytes })),
    ...["", "../../../../etc/passwd", "AB".repeat(32), 7].map((sha256) => ({ ...TABLE, sha256 })),
    { ...TABLE, more: 1 },
    null,
    [],
    "table",
  ];
  const wrong = [
    "",
    "null",
    "[]",
    text.slice(0, -1),
    text.slice(0, 100),
    text.replace("20", "21"),
    textOf(TABLE, sha256Hex("another")),
    textOf(TABLE, undefined, "1"),
    ...lies.map((table) => textOf(table)),
  ];
  for (const each of wrong) {
    assert.throws(
      () => parseTable(each, digest, descriptor),
      { kind: "Internal", message: /frames\.json is damaged: it is no table/ },
      each,
    );
  }
  assert.throws(() => parseTable(textOf(TABLE, undefined, 2), digest, descriptor), /its version is 2, not 1/);
});

function samples(): readonly Uint8Array[] {
  const lengths = [1, 63, 64, 4_096, 262_144];
  return lengths.flatMap((length) => [
    Buffer.alloc(length, "x"),
    randomBytes(length),
    Buffer.alloc(length, randomBytes(100)),
  ]);
}
