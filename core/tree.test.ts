import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import {
  encodeTreeData,
  encodeTreeEnd,
  encodeTreeFile,
  encodeTreeMap,
  TreeDecoder,
  type TreeFile,
  type TreePart,
} from "#core/tree.ts";

const u32 = fc.nat({ max: 2 ** 32 - 1 });
const component = fc
  .uint8Array({ minLength: 1, maxLength: 20 })
  .filter(
    (bytes) => !bytes.includes(0) && !bytes.includes(0x2f) && !/^\.\.?$/.test(Buffer.from(bytes).toString("latin1")),
  );
const name = fc
  .array(component, { minLength: 1, maxLength: 4 })
  .map(
    (parts) =>
      new Uint8Array(Buffer.concat(parts.flatMap((part, at) => (at === 0 ? [part] : [Buffer.from("/"), part])))),
  );
const aFile: fc.Arbitrary<TreeFile> = fc
  .record({
    name,
    type: fc.constantFrom("file" as const, "directory" as const, "symlink" as const, "fifo" as const, "link" as const),
    mode: fc.nat({ max: 0o7777 }),
    uid: u32,
    gid: u32,
    size: fc.nat(),
    mtimeNs: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    target: name,
  })
  .map((file) => ({ ...file, target: file.type === "symlink" || file.type === "link" ? file.target : undefined }));
const aPart: fc.Arbitrary<TreePart> = fc.oneof(
  aFile.map((file) => ({ type: "entry" as const, file })),
  fc.uint8Array({ minLength: 1, maxLength: 500 }).map((bytes) => ({ type: "data" as const, bytes })),
  fc
    .array(fc.record({ offset: fc.nat(), size: fc.nat() }), { maxLength: 5 })
    .map((extents) => ({ type: "map" as const, extents })),
);

function encode(part: TreePart): Uint8Array {
  if (part.type === "entry") return encodeTreeFile(part.file);
  if (part.type === "data") return Buffer.concat(encodeTreeData(part.bytes));
  return part.type === "map" ? Buffer.concat(encodeTreeMap(part.extents)) : encodeTreeEnd();
}

/** Parts with data that lies together joined: where it is cut says nothing. */
function joined(parts: readonly TreePart[]): unknown[] {
  const found: unknown[] = [];
  let data: Buffer[] = [];
  const flush = () => {
    if (data.length > 0) found.push(Buffer.concat(data).toString("hex"));
    data = [];
  };
  for (const part of parts) {
    if (part.type === "data") data.push(Buffer.from(part.bytes));
    else {
      flush();
      found.push(structuredClone(part.type === "entry" ? { ...part.file, target: part.file.target ?? null } : part));
    }
  }
  flush();
  return found;
}

describe("coding of trees", () => {
  test("what was encoded is decoded, wherever the chunks are cut", () => {
    fc.assert(
      fc.property(fc.array(aPart, { maxLength: 8 }), fc.array(fc.nat({ max: 300 })), (parts, cuts) => {
        const whole: TreePart[] = [...parts, { type: "end" }];
        const bytes = Buffer.concat(whole.map(encode));
        const decoder = new TreeDecoder();
        const decoded: TreePart[] = [];
        const take = (chunk: Uint8Array) => {
          for (const part of decoder.push(chunk)) {
            decoded.push(part.type === "data" ? { ...part, bytes: new Uint8Array(part.bytes) } : part);
          }
        };
        let at = 0;
        for (const cut of cuts) {
          take(bytes.subarray(at, at + cut));
          at = Math.min(bytes.length, at + cut);
        }
        take(bytes.subarray(at));
        decoder.end();
        assert.deepEqual(joined(decoded), joined(whole));
      }),
    );
  });

  test("hostile bytes give parts within the bounds or a typed error, never a crash", () => {
    const record = fc
      .tuple(fc.nat({ max: 70_000 }), fc.nat({ max: 12 }), fc.uint8Array({ maxLength: 200 }))
      .map(([length, type, rest]) => {
        const bytes = Buffer.concat([Buffer.alloc(8), rest]);
        bytes.writeUInt32LE(length);
        bytes[4] = type;
        return bytes;
      });
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.uint8Array({ maxLength: 100 }), record), { maxLength: 6 }), (chunks) => {
        const decoder = new TreeDecoder();
        try {
          for (const chunk of chunks) for (const part of decoder.push(chunk)) assert.ok(part.type.length > 0);
          decoder.end();
        } catch (error) {
          assert.ok(error instanceof SandboxError && error.kind === "Internal", String(error));
        }
      }),
    );
  });

  test("names that lead elsewhere are refused, those of links' targets too", () => {
    const file: TreeFile = {
      name: Buffer.from("a"),
      type: "file",
      mode: 0,
      uid: 0,
      gid: 0,
      size: 0,
      mtimeNs: 0n,
      target: undefined,
    };
    for (const bad of ["../x", "a/../b", "/a", "a//b", "./a", "a/", "", "a\0b"]) {
      const named = encodeTreeFile({ ...file, name: Buffer.from(bad) });
      assert.throws(() => [...new TreeDecoder().push(named)], { kind: "Internal" }, bad);
      const linked = encodeTreeFile({ ...file, type: "link", target: Buffer.from(bad) });
      assert.throws(() => [...new TreeDecoder().push(linked)], { kind: "Internal" }, bad);
    }
  });

  test("a stream without its end, or with more behind it, is not whole", () => {
    assert.throws(() => new TreeDecoder().end(), { kind: "Internal" });
    const decoder = new TreeDecoder();
    assert.throws(() => [...decoder.push(Buffer.concat([encodeTreeEnd(), encodeTreeEnd()]))], { kind: "Internal" });
  });
});
