import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { LayerDigest } from "#core/sandbox.ts";
import { type BlobDescriptor, descriptorText, digestOfBlob, PIECE_BYTES, parseDescriptor } from "./blobs/descriptor.ts";
import { blobDigest, canonicalJson, sha256Hex } from "./digest.ts";
import { digestOf, type LayerManifest, manifestText, parseManifest } from "./manifest.ts";

const HEX = "a".repeat(64);
const MANIFEST: LayerManifest = {
  version: 2,
  metadata: { sizeBytes: 4096, sha256: HEX },
  blobs: [{ digest: blobDigest(HEX), sizeBytes: 8192 }],
};
const DESCRIPTOR: BlobDescriptor = {
  version: 1,
  sizeBytes: PIECE_BYTES + 1,
  pieceBytes: PIECE_BYTES,
  pieces: [HEX, HEX],
  chunksSha256: HEX,
};

/** Texts of which a hostile store could give the digest. */
function hostile(sound: object, changes: readonly object[]): string[] {
  return ["", "null", "[]", "7", "{", ...changes.map((change) => canonicalJson({ ...sound, ...change }))];
}

describe("a manifest", () => {
  test("is read as it was written, and only under its own name", () => {
    const digest = digestOf(MANIFEST);
    assert.deepEqual(parseManifest(manifestText(MANIFEST), digest), MANIFEST);
    assert.throws(() => parseManifest(`${manifestText(MANIFEST)} `, digest), { kind: "Internal" });
  });

  test("that describes no layer is refused although its digest is right", () => {
    const changes = [
      { version: 1 },
      { more: true },
      { metadata: undefined },
      { metadata: { sizeBytes: -1.5, sha256: HEX } },
      { metadata: { sizeBytes: 1, sha256: "../../etc" } },
      { metadata: { sizeBytes: -4096, sha256: HEX } },
      { blobs: {} },
      { blobs: [null] },
      { blobs: [{ digest: "sha256:../..", sizeBytes: 1 }] },
      { blobs: Array(120).fill(MANIFEST.blobs[0]) },
    ];
    for (const text of hostile(MANIFEST, changes)) {
      const digest = `sha256:${sha256Hex(text)}` as LayerDigest;
      assert.throws(() => parseManifest(text, digest), {
        kind: "Internal",
        details: { layer: digest, part: "manifest" },
      });
    }
  });
});

describe("a descriptor", () => {
  test("is read as it was written, and only under its own name", () => {
    const digest = digestOfBlob(DESCRIPTOR);
    assert.deepEqual(parseDescriptor(descriptorText(DESCRIPTOR), digest), DESCRIPTOR);
    assert.throws(() => parseDescriptor(`${descriptorText(DESCRIPTOR)} `, digest), { kind: "Internal" });
  });

  test("that describes no blob is refused although its digest is right", () => {
    const changes = [
      { version: 2 },
      { more: true },
      { sizeBytes: PIECE_BYTES },
      { sizeBytes: -1, pieces: [] },
      { sizeBytes: "1" },
      { pieceBytes: 1 },
      { pieces: [HEX] },
      { pieces: [HEX, "b"] },
      { chunksSha256: undefined },
    ];
    for (const text of hostile(DESCRIPTOR, changes)) {
      const digest = blobDigest(sha256Hex(text));
      assert.throws(() => parseDescriptor(text, digest), {
        kind: "Internal",
        details: { blob: digest, part: "descriptor" },
      });
    }
  });
});
