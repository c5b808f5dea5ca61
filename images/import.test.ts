import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { importArtifact } from "./import.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { LayerStore } from "./store.ts";
import {
  archive,
  importBytes,
  type Member,
  pax,
  pieces,
  temporaryDirectory,
  temporaryStore,
} from "./test-support/fixtures.ts";
import { fsck, mounted, snapshot } from "./test-support/inspect.ts";
import { makeNastyTree } from "./test-support/nasty-tree.ts";

/** Imports an archive and looks at its mounted tree. */
async function look(bytes: Buffer, visit: (path: string) => void): Promise<void> {
  using made = await temporaryStore();
  const { layers } = await importBytes(made.store, bytes);
  const digest = layers[0];
  assert.ok(digest !== undefined);
  using layer = await mounted(made.store, digest);
  visit(layer.path);
}

/** What a store holds, finished or not. */
function contents(store: LayerStore): readonly string[] {
  return ["layers", "tmp"].flatMap((name) => readdirSync(join(store.dir, name)));
}

describe("importing a tar", () => {
  for (const format of ["pax", "gnu"]) {
    test(`in ${format} format gives the tree that tar would unpack`, async () => {
      using source = temporaryDirectory();
      using made = await temporaryStore();
      makeNastyTree(source.path);
      const xattrs = format === "pax" ? ["--xattrs", "--xattrs-include=*"] : [];
      const args = [`--format=${format}`, "--numeric-owner", ...xattrs, "-C", source.path, "-c", "."];
      const bytes = execFileSync("tar", args, { maxBuffer: 2 ** 28 });
      const { layers } = await importBytes(made.store, bytes);
      const digest = layers[0];
      assert.ok(digest !== undefined);
      using unpacked = temporaryDirectory();
      execFileSync("tar", ["--numeric-owner", "-p", ...xattrs, "-C", unpacked.path, "-x"], { input: bytes });
      using layer = await mounted(made.store, digest);
      const [expected, found] = [snapshot(unpacked.path), snapshot(layer.path)];
      for (const [path, line] of expected) assert.equal(found.get(path), line, JSON.stringify(path));
      assert.equal(found.size, expected.size);
      await fsck(made.store, digest);
    });
  }

  test("gives the same layer plain and in every compression", async () => {
    using made = await temporaryStore();
    const bytes = archive({ path: "a", body: "x".repeat(100_000) }, { path: "d", flag: "5" });
    const results = [];
    for (const form of [bytes, gzipSync(bytes), zstdCompressSync(bytes), packed("xz", bytes), packed("bzip2", bytes)])
      results.push(await importBytes(made.store, form));
    assert.equal(new Set(results.flatMap(({ layers }) => layers)).size, 1);
    assert.equal((await made.store.list()).length, 1);
  });

  test("puts absolute paths beneath the root and makes missing parents", async () => {
    await look(archive({ path: "/etc/deep/file", body: "x" }), (path) => {
      assert.equal(readFileSync(join(path, "etc/deep/file"), "utf8"), "x");
      assert.equal(statSync(join(path, "etc/deep")).mode, 0o40755);
    });
  });

  test("lets the last entry for a path win, and keeps the children of a directory named twice", async () => {
    const bytes = archive(
      { path: "f", body: "first" },
      { path: "f", body: "second" },
      { path: "d", flag: "5", mode: 0o700 },
      { path: "d/child", body: "c" },
      { path: "d", flag: "5", mode: 0o711 },
      { path: "tree/leaf", body: "x" },
      { path: "tree", body: "now a file" },
    );
    await look(bytes, (path) => {
      assert.equal(readFileSync(join(path, "f"), "utf8"), "second");
      assert.equal(statSync(join(path, "d")).mode, 0o40711);
      assert.equal(readFileSync(join(path, "d/child"), "utf8"), "c");
      assert.equal(readFileSync(join(path, "tree"), "utf8"), "now a file");
    });
  });

  test("keeps a hard link as a link to the content it named when it came", async () => {
    const bytes = archive(
      { path: "a", body: "old" },
      { path: "b", flag: "1", target: "./a" },
      { path: "a", body: "new" },
    );
    await look(bytes, (path) => {
      assert.equal(readFileSync(join(path, "b"), "utf8"), "old");
      assert.equal(statSync(join(path, "b")).nlink, 1);
      assert.equal(readFileSync(join(path, "a"), "utf8"), "new");
    });
  });

  test("takes names that begin with .wh. for names", async () => {
    await look(archive({ path: ".wh.file", body: "x" }), (path) => {
      assert.deepEqual(readdirSync(path), [".wh.file"]);
    });
  });

  test("stores equal chunks once and zeros not at all", async () => {
    using made = await temporaryStore();
    const body = Buffer.alloc(3 * 2 ** 20, "equal ");
    const { layers } = await importBytes(
      made.store,
      archive({ path: "a", body }, { path: "b", body }, { path: "z", body: Buffer.alloc(2 ** 22) }),
    );
    const digest = layers[0];
    assert.ok(digest !== undefined);
    const { blobs } = await made.store.manifest(digest);
    const stored = blobs.map(({ sizeBytes }) => sizeBytes);
    assert.ok(stored.length === 1 && (stored[0] ?? 0) <= body.length, `blobs of ${stored} bytes`);
  });

  test("leaves device nodes out of a base, counts them, and keeps an overlay's whiteout", async () => {
    using made = await temporaryStore();
    const bytes = archive({ path: "null", flag: "3", device: [1, 3] }, { path: "gone", flag: "3", device: [0, 0] });
    const { layers, skippedDevices } = await importBytes(made.store, bytes);
    assert.equal(skippedDevices, 1);
    const digest = layers[0];
    assert.ok(digest !== undefined);
    using layer = await mounted(made.store, digest);
    assert.deepEqual(readdirSync(layer.path), ["gone"]);
    assert.equal(statSync(join(layer.path, "gone")).rdev, 0);
  });

  test("drops labels of the host's security modules and marks of another overlay", async () => {
    const records = {
      "SCHILY.xattr.security.selinux": "label",
      "SCHILY.xattr.trusted.overlay.origin": "handle",
      "SCHILY.xattr.user.kept": "yes",
    };
    await look(archive(pax(records), { path: "a" }), (path) => {
      assert.match(snapshot(path).get("/a") ?? "", /user\.kept=796573/);
      assert.doesNotMatch(snapshot(path).get("/a") ?? "", /selinux|origin/);
    });
  });
});

describe("importing a hostile tar is refused and leaves nothing:", () => {
  const up = { path: "x", flag: "2", target: "/etc" };
  const refused: readonly (readonly [what: string, members: readonly (Member | Buffer)[], message: RegExp])[] = [
    ["a path with ..", [{ path: "a/../../b" }], /"a\/..\/..\/b" leads out of the tree/],
    ["a path that is only ..", [{ path: "..", flag: "5" }], /leads out of the tree/],
    ["a pax path with ..", [pax({ path: "../etc/passwd" }), { path: "ok" }], /leads out/],
    ["a path with NUL", [pax({ path: "a\0b" }), { path: "ok" }], /NUL/],
    ["a name of 256 bytes", [pax({ path: "n".repeat(256) }), { path: "ok" }], /more than 255 bytes/],
    ["a path of 5,000 bytes", [pax({ path: "d/".repeat(2500) }), { path: "ok" }], /longer than 4096/],
    ["a file beneath a link", [up, { path: "x/passwd" }], /beneath "x", which is not a directory/],
    ["a file beneath a file", [{ path: "f" }, { path: "f/g/h" }], /beneath "f"/],
    ["a hard link out of the tree", [{ path: "l", flag: "1", target: "../../etc/shadow" }], /leads out/],
    [
      "a hard link to nothing",
      [{ path: "l", flag: "1", target: "/etc/shadow" }],
      /"l" is a hard link to "\/etc\/shadow"/,
    ],
    ["a hard link through a link", [up, { path: "l", flag: "1", target: "x/shadow" }], /hard link/],
    [
      "a hard link to a directory",
      [
        { path: "d", flag: "5" },
        { path: "l", flag: "1", target: "d" },
      ],
      /hard link/,
    ],
    ["a root that is no directory", [{ path: ".", body: "x" }], /root of the tree/],
    ["an owner above 65535", [{ path: "a", uid: 65_536 }], /belongs to 65536:0.*65535/],
    ["a negative owner", [{ path: "a", gid: -1 }], /belongs to 0:-1/],
    ["an empty link target", [{ path: "l", flag: "2" }], /impossible target/],
    [
      "an overlay redirect",
      [pax({ "SCHILY.xattr.trusted.overlay.redirect": "/" }), { path: "d", flag: "5" }],
      /redirect/,
    ],
    [
      "an attribute larger than 64 KiB",
      [pax({ "SCHILY.xattr.user.x": "v".repeat(70_000) }), { path: "a" }],
      /attribute/,
    ],
  ];
  for (const [what, members, message] of refused) {
    test(what, async () => {
      using made = await temporaryStore();
      await assert.rejects(importBytes(made.store, archive({ path: "before", body: "x" }, ...members)), {
        kind: "InvalidArgument",
        message,
      });
      assert.deepEqual(contents(made.store), []);
    });
  }

  test("a device node in a workspace or a toolkit", async () => {
    using made = await temporaryStore();
    for (const kind of ["workspace", "toolkit"] as const) {
      const importing = importBytes(made.store, archive({ path: "sda", flag: "4", device: [8, 0] }), { kind });
      await assert.rejects(importing, { kind: "InvalidArgument", message: /"sda" is a device node/ });
    }
    assert.deepEqual(contents(made.store), []);
  });

  test("a compression we do not know, by name", async () => {
    using made = await temporaryStore();
    const zip = Buffer.from("PK\x03\x04 and so on");
    await assert.rejects(importBytes(made.store, zip), { kind: "InvalidArgument", message: /compressed with zip/ });
  });

  for (const format of ["xz", "bzip2"] as const) {
    test(`a damaged or cut off ${format} stream, however much of it was read`, async () => {
      using made = await temporaryStore();
      const body = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7919) >> 3));
      const whole = packed(format, archive({ path: "a", body }, { path: "b", body }));
      const damaged = Buffer.from(whole);
      damaged.writeUInt8((damaged.at(-30) ?? 0) ^ 1, damaged.length - 30);
      for (const bytes of [whole.subarray(0, 20), whole.subarray(0, -20), damaged]) {
        await assert.rejects(importBytes(made.store, bytes), {
          kind: "InvalidArgument",
          message: /damaged or cut off/,
        });
      }
      assert.deepEqual(contents(made.store), []);
    });
  }

  test("more entries, names or data than the limits allow", async () => {
    using made = await temporaryStore();
    const bytes = archive({ path: "a", body: "12345" }, { path: "b" }, { path: "c" });
    for (const limit of [{ entries: 2 }, { nameBytes: 2 }, { dataBytes: 4 }]) {
      const importing = importBytes(made.store, bytes, { limits: { ...DEFAULT_LIMITS, ...limit } });
      await assert.rejects(importing, { kind: "TooLarge" });
    }
    assert.deepEqual(contents(made.store), []);
  });

  test("a bomb: gigabytes of zeros in a few kilobytes stop at the limit", async () => {
    using made = await temporaryStore();
    const bomb = gzipSync(archive({ path: "zeros", body: Buffer.alloc(64 * 2 ** 20) }));
    const limits = { ...DEFAULT_LIMITS, dataBytes: 2 ** 20 };
    await assert.rejects(importBytes(made.store, bomb, { limits }), { kind: "TooLarge" });
    assert.deepEqual(contents(made.store), []);
  });
});

describe("an import that is given up", () => {
  test("ends at once with the signal's reason, though the sender has stalled, and leaves nothing", async () => {
    using made = await temporaryStore();
    const controller = new AbortController();
    const { promise: forever } = Promise.withResolvers<void>();
    async function* stalled(): AsyncIterable<Uint8Array> {
      yield archive({ path: "a", body: Buffer.alloc(100_000, 1) }).subarray(0, 50_000);
      controller.abort(new Error("given up"));
      await forever;
    }
    const importing = importArtifact({
      store: made.store,
      source: stalled(),
      format: "tar",
      signal: controller.signal,
    });
    await assert.rejects(importing, /given up/);
    assert.deepEqual(contents(made.store), []);
  });

  test("by its sender rejects with the sender's error, compressed or not", async () => {
    using made = await temporaryStore();
    const plain = archive({ path: "a", body: "x" });
    for (const bytes of [plain, gzipSync(plain), packed("xz", plain)]) {
      async function* broken(): AsyncIterable<Uint8Array> {
        yield bytes.subarray(0, 20);
        throw new Error("connection reset");
      }
      await assert.rejects(importArtifact({ store: made.store, source: broken(), format: "tar" }), /connection reset/);
    }
    assert.deepEqual(contents(made.store), []);
  });

  test("hears of its progress", async () => {
    using made = await temporaryStore();
    const bytes = archive({ path: "a", body: Buffer.alloc(9 * 2 ** 20, 5) });
    const seen: number[] = [];
    const source = pieces(bytes, 2 ** 16);
    await importArtifact({
      store: made.store,
      source,
      format: "tar",
      progress: ({ receivedBytes }) => seen.push(receivedBytes),
    });
    assert.ok(seen.length >= 3);
    assert.equal(seen.at(-1), bytes.length);
  });
});

/** Compressed by the program of that name. */
function packed(format: "xz" | "bzip2", bytes: Buffer): Buffer {
  return execFileSync(format, ["--compress", "--stdout"], { input: bytes, maxBuffer: 2 ** 26 });
}
