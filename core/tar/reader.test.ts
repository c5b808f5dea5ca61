import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { EntrySink, TreeEntry } from "#core/tar/entry.ts";
import { TarReader } from "#core/tar/reader.ts";
import { archive, type Member, member, pax } from "#core/tar/test-support/fixtures.ts";

class Recorder implements EntrySink {
  readonly entries: TreeEntry[] = [];
  readonly bodies: Buffer[] = [];

  entry(entry: TreeEntry): void {
    this.entries.push(entry);
    this.bodies.push(Buffer.alloc(0));
  }

  data(bytes: Uint8Array): void {
    this.bodies.push(Buffer.concat([this.bodies.pop() ?? Buffer.alloc(0), bytes]));
  }
}

function read(bytes: Buffer, pieceBytes = bytes.length): Recorder {
  const recorder = new Recorder();
  const reader = new TarReader(recorder);
  for (let at = 0; at < bytes.length; at += pieceBytes) reader.push(bytes.subarray(at, at + pieceBytes));
  reader.finish();
  return recorder;
}

function only(...parts: readonly (Member | Buffer)[]): TreeEntry {
  const { entries } = read(archive(...parts));
  assert.equal(entries.length, 1);
  const [entry] = entries;
  assert.ok(entry !== undefined);
  return entry;
}

describe("a tar reader", () => {
  test("gives the same entries whatever the pieces it is fed", () => {
    const bytes = archive(
      { path: "a", body: "hello" },
      pax({ path: `${"d/".repeat(90)}long` }),
      { path: "short", body: Buffer.alloc(1500, 3) },
      { path: "dir/", flag: "5" },
    );
    const whole = read(bytes);
    for (const size of [1, 7, 511, 512, 513, 1024]) {
      const parts = read(bytes, size);
      assert.deepEqual(parts.entries, whole.entries);
      assert.deepEqual(parts.bodies, whole.bodies);
    }
  });

  test("keeps names that are not UTF-8 as bytes, in headers, pax records and GNU long names", () => {
    const name = Buffer.from([0x66, 0xff, 0xfe, 0x80]);
    assert.equal(only({ path: name }).path, "f\xff\xfe\x80");
    assert.equal(only(pax({ path: name }), { path: "x" }).path, "f\xff\xfe\x80");
    assert.equal(only({ path: "././@LongLink", flag: "L", body: name }, { path: "x" }).path, "f\xff\xfe\x80");
    assert.equal(only(pax({ linkpath: name }), { path: "x", flag: "2", target: "y" }).target, "f\xff\xfe\x80");
  });

  test("applies a pax record to one entry and a global one to all that follow", () => {
    const { entries } = read(
      archive(pax({ mtime: "77" }, "g"), pax({ uid: "9", mtime: "5.25" }), { path: "a" }, { path: "b" }),
    );
    assert.deepEqual(
      entries.map(({ uid, mtimeS, mtimeNs }) => [uid, mtimeS, mtimeNs]),
      [
        [9, 5, 250_000_000],
        [0, 77, 0],
      ],
    );
  });

  test("reads numbers in base 256 and times before 1970", () => {
    assert.equal(only({ path: "a", uid: 3_000_000, mtime: -5 }).uid, 3_000_000);
    assert.equal(only({ path: "a", mtime: -5 }).mtimeS, -5);
    const entry = only(pax({ mtime: "-1.25" }), { path: "a" });
    assert.deepEqual([entry.mtimeS, entry.mtimeNs], [-2, 750_000_000]);
  });

  test("joins the prefix of POSIX headers and leaves that of GNU ones alone", () => {
    const header = (magic: string): Buffer => {
      const bytes = member({ path: "name", magic });
      bytes.write("prefix", 345);
      bytes.fill(0x20, 148, 156);
      bytes.write(
        `${bytes
          .reduce((sum, byte) => sum + byte, 0)
          .toString(8)
          .padStart(6, "0")}\0 `,
        148,
      );
      return bytes;
    };
    assert.equal(only(header("ustar\x0000")).path, "prefix/name");
    assert.equal(only(header("ustar  \0")).path, "name");
  });

  test("takes binary attributes with any byte in them", () => {
    const value = Buffer.from([0, 10, 61, 255, 0]);
    const entry = only(pax({ "SCHILY.xattr.user.x": value }), { path: "a" });
    assert.deepEqual(Buffer.from(entry.xattrs?.get("user.x") ?? []), value);
  });

  test("ignores what stands behind the end mark, as tar does", () => {
    assert.equal(read(Buffer.concat([archive({ path: "a" }), Buffer.alloc(700, 0xaa)])).entries.length, 1);
  });

  const refused: readonly (readonly [what: string, bytes: Buffer, message: RegExp])[] = [
    ["an archive cut off after an entry", member({ path: "a", body: "x" }), /cut off after the entry "a"/],
    ["an archive cut off within data", archive({ path: "a", body: Buffer.alloc(2000) }).subarray(0, 1500), /cut off/],
    ["nothing at all", Buffer.alloc(0), /cut off after the start/],
    ["a header with a wrong sum", archive(Buffer.alloc(512, 0x41)), /damaged after the start/],
    ["a sparse file", archive({ path: "s", flag: "S" }), /"s" is a sparse file.*--sparse/],
    ["a sparse file in pax", archive(pax({ "GNU.sparse.major": "1" }), { path: "s" }), /is a sparse file/],
    ["an unknown type", archive({ path: "u", flag: "Q" }), /"u" is of the unknown type "Q"/],
    ["a volume of several", archive({ path: "m", flag: "M" }), /another volume/],
    [
      "a pax record that is too long",
      archive(member({ path: "p", flag: "x", body: "99 path=a\n" }), { path: "a" }),
      /pax/,
    ],
    ["a pax record without length", archive(member({ path: "p", flag: "x", body: "path=a\n" }), { path: "a" }), /pax/],
    ["a pax record of no bytes", archive(member({ path: "p", flag: "x", body: "0 a=b\n" }), { path: "a" }), /pax/],
    ["an impossible pax size", archive(pax({ size: "-4" }), { path: "a" }), /impossible size/],
    ["a record larger than any header", archive({ path: "p", flag: "x", size: 2 ** 21 }), /oversized/],
    ["a negative size", archive({ path: "a", size: -1 }), /damaged/],
  ];
  for (const [what, bytes, message] of refused) {
    test(`refuses ${what}`, () => {
      assert.throws(() => read(bytes), { kind: "InvalidArgument", message });
    });
  }
});
