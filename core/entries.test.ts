import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { EntryDecoder, encodeEntry } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import type { FileInfo, FileType } from "#core/sandbox.ts";

const types: FileType[] = ["file", "directory", "symlink", "fifo", "socket", "character-device", "block-device"];
const u32 = fc.nat({ max: 2 ** 32 - 1 });
const anEntry: fc.Arbitrary<FileInfo> = fc
  .record({
    name: fc.uint8Array({ maxLength: 4095 }),
    type: fc.constantFrom(...types),
    mode: fc.nat({ max: 0o7777 }),
    uid: u32,
    gid: u32,
    size: fc.maxSafeNat(),
    mtimeNs: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    target: fc.uint8Array({ maxLength: 4095 }),
  })
  .map((entry) => ({ ...entry, target: entry.type === "symlink" ? entry.target : undefined }));

const AN_ENTRY: FileInfo = {
  name: Buffer.from("a"),
  type: "file",
  mode: 0o644,
  uid: 0,
  gid: 0,
  size: 1,
  mtimeNs: -1n,
  target: undefined,
};

function concat(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

function plain(entries: readonly FileInfo[]): unknown {
  return entries.map((entry) => ({
    ...entry,
    name: Buffer.from(entry.name).toString("hex"),
    target: entry.target === undefined ? undefined : Buffer.from(entry.target).toString("hex"),
  }));
}

describe("coding of directory entries", () => {
  test("what was encoded is decoded, wherever the chunks are cut", () => {
    fc.assert(
      fc.property(fc.array(anEntry, { maxLength: 8 }), fc.array(fc.nat({ max: 300 })), (entries, cuts) => {
        const bytes = concat(entries.map(encodeEntry));
        const decoder = new EntryDecoder();
        const decoded: FileInfo[] = [];
        let at = 0;
        for (const cut of cuts) {
          decoded.push(...decoder.push(bytes.subarray(at, at + cut)));
          at = Math.min(bytes.length, at + cut);
        }
        decoded.push(...decoder.push(bytes.subarray(at)));
        decoder.end();
        assert.deepEqual(plain(decoded), plain(entries));
      }),
    );
  });

  test("hostile bytes give entries within the bounds or a typed error, never a crash", () => {
    const header = fc
      .tuple(fc.nat({ max: 9000 }), fc.uint8Array({ minLength: 36, maxLength: 9000 }))
      .map(([n, rest]) => {
        const bytes = concat([new Uint8Array(4), rest]);
        new DataView(bytes.buffer).setUint32(0, n, true);
        return bytes;
      });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 300 }), header), (bytes) => {
        const decoder = new EntryDecoder();
        try {
          for (const entry of decoder.push(bytes)) {
            assert.ok(entry.name.length <= 4095 && entry.size >= 0 && entry.mode <= 0o7777);
          }
          decoder.end();
        } catch (error) {
          assert.ok(error instanceof SandboxError && error.kind === "Internal", String(error));
        }
      }),
    );
  });

  test("what was decoded outlives the chunk, whose bytes are used again", () => {
    const entry: FileInfo = { ...AN_ENTRY, type: "symlink", target: Buffer.from("there") };
    const bytes = Buffer.concat([encodeEntry(entry), encodeEntry(entry).subarray(0, 20)]);
    const decoder = new EntryDecoder();
    const [decoded] = decoder.push(bytes);
    bytes.fill(0xff);
    assert.deepEqual([decoded?.name, decoded?.target].map(String), ["97", "116,104,101,114,101"]);
    assert.equal(decoder.push(encodeEntry(entry).subarray(20)).length, 1);
  });

  test("a record cut short is an error at the end", () => {
    const decoder = new EntryDecoder();
    assert.deepEqual(decoder.push(encodeEntry(AN_ENTRY).subarray(0, 40)), []);
    assert.throws(() => decoder.end(), { kind: "Internal" });
  });

  test("an announced length beyond the longest record is refused before it is buffered", () => {
    assert.throws(() => new EntryDecoder().push(Buffer.from([0x23, 0x20, 0, 0])), { kind: "Internal" });
    assert.throws(() => new EntryDecoder().push(Buffer.from([0xff, 0xff, 0xff, 0xff])), { kind: "Internal" });
  });
});
