import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { archive, type Member, member, pax } from "#core/tar/test-support/fixtures.ts";
import { tarDirectory } from "./tar-directory.ts";
import { type UntarOptions, type Untarred, untar } from "./untar.ts";

async function* pieces(bytes: Buffer, size = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

describe("a tree from a sandbox on this machine", () => {
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "dsec-untar-"));
    writeFileSync(join(folder, "outside"), "kept");
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const unpack = (bytes: Buffer, options: Partial<UntarOptions> = {}): Promise<Untarred> =>
    untar(pieces(bytes), Buffer.from(join(folder, "tree")), { archive: false, allLinks: false, ...options });
  const at = (name: string) => join(folder, "tree", name);

  test("contents, modes, times, links and holes arrive, and special bits only when asked for", async () => {
    const records = {
      "GNU.sparse.major": "1",
      "GNU.sparse.minor": "0",
      "GNU.sparse.name": "d/s",
      "GNU.sparse.realsize": "5000000",
    };
    const body = Buffer.alloc(512 + 3);
    body.write("1\n1000000\n3\n");
    body.write("abc", 512);
    const parts: (Member | Buffer)[] = [
      { path: "./", flag: "5", mode: 0o750, mtime: 77 },
      { path: "d/", flag: "5", mode: 0o500, mtime: 99 },
      { path: "d/f", body: "hello", mode: 0o4755, mtime: 1234567890 },
      { path: "d/h", flag: "1", target: "./d/f" },
      { path: "l", flag: "2", target: "d/../d/f" },
      pax(records),
      member({ path: "GNUSparseFile.0/s", body, size: body.length }),
    ];
    await unpack(archive(...parts));
    assert.equal(readFileSync(at("l"), "utf8"), "hello");
    assert.deepEqual([statSync(at("d/f")).mode & 0o7777, statSync(at("d/f")).mtimeMs], [0o755, 1234567890000]);
    assert.equal(statSync(at("d/f")).ino, statSync(at("d/h")).ino);
    assert.deepEqual(
      [statSync(at("d")).mode & 0o777, statSync(at("d")).mtimeMs, statSync(at("")).mtimeMs],
      [0o500, 99000, 77000],
    );
    assert.equal(statSync(at("d/s")).size, 5_000_000);
    assert.equal(readFileSync(at("d/s")).subarray(999_999, 1_000_004).toString("latin1"), "\0abc\0");
    rmSync(at(""), { recursive: true });
    await unpack(archive({ path: "f", mode: 0o6755, uid: 5, gid: 6 }), { archive: true });
    assert.deepEqual([statSync(at("f")).mode & 0o7777, statSync(at("f")).uid], [0o6755, 5]);
  });

  test("what tar-directory packs comes back the same", async () => {
    execFileSync(
      "sh",
      // Times that a double holds exactly: it has others to some tenths of a microsecond.
      [
        "-c",
        "mkdir -p src/a/b && cd src && echo x >a/f && ln a/f a/b/g && ln -s f a/l && touch -h -d @1234567890.25 a/f a/l && touch -d @5 a",
      ],
      { cwd: folder },
    );
    await unpack(Buffer.concat(await Array.fromAsync(tarDirectory(join(folder, "src")))));
    const told = (name: string) =>
      execFileSync("sh", ["-c", "find . -printf '%p %y %m %s %T@ %l %n\\n' | grep -v ' d ' | sort"], {
        cwd: join(folder, name),
        encoding: "utf8",
      });
    assert.equal(told("tree"), told("src"));
  });

  const hostile: readonly (readonly [what: string, parts: readonly (Member | Buffer)[]])[] = [
    ["a path that leads up", [{ path: "../outside", body: "x" }]],
    ["a path that leads up later", [{ path: "a/../../outside", body: "x" }]],
    ["an absolute path in no directory of the tree", [{ path: "/a/b/outside", body: "x" }]],
    [
      "a file through a link",
      [
        { path: "l", flag: "2", target: "." },
        { path: "l/f", body: "x" },
      ],
    ],
    [
      "a file, then a link of its name, then a write through it",
      [{ path: "f" }, { path: "f", flag: "2", target: "../outside" }, { path: "f", body: "x" }],
    ],
    [
      "a directory that becomes a link",
      [
        { path: "d/", flag: "5" },
        { path: "d", flag: "2", target: ".." },
      ],
    ],
    ["a hard link to outside", [{ path: "h", flag: "1", target: "../outside" }]],
    [
      "a hard link to a link",
      [
        { path: "l", flag: "2", target: "x" },
        { path: "h", flag: "1", target: "l" },
      ],
    ],
    ["a name longer than any", [pax({ path: "n".repeat(300) }), { path: "x" }]],
    ["a path longer than any", [pax({ path: "n/".repeat(3000) }), { path: "x" }]],
    ["a header that fills the memory", [member({ path: "x", flag: "x", size: 2 ** 32 })]],
    ["an archive that is cut off", [member({ path: "f", body: Buffer.alloc(900) }).subarray(0, 1000)]],
  ];
  for (const [what, parts] of hostile) {
    test(`symlinks in downloads leak or overwrite host files: ${what} is refused, and nothing is left`, async () => {
      const bytes = what.includes("cut off") ? Buffer.concat(parts as Buffer[]) : archive(...parts);
      await assert.rejects(unpack(bytes, { allLinks: true }), { kind: "InvalidArgument" });
      assert.deepEqual(readdirSync(folder), ["outside"]);
      assert.equal(readFileSync(join(folder, "outside"), "utf8"), "kept");
    });
  }

  test("links that lead out, devices and FIFOs are left out and counted; links only come when asked for", async () => {
    const parts: Member[] = [
      { path: "d/", flag: "5" },
      { path: "d/up", flag: "2", target: "../../x" },
      { path: "abs", flag: "2", target: "/etc/passwd" },
      { path: "in", flag: "2", target: "d/../none" },
      { path: "null", flag: "3", device: [1, 3] },
      { path: "pipe", flag: "6" },
    ];
    const { linksLeftOut, specialLeftOut } = await unpack(archive(...parts));
    assert.deepEqual([linksLeftOut, specialLeftOut, readdirSync(at("")).sort()], [2, 2, ["d", "in"]]);
    rmSync(at(""), { recursive: true });
    await unpack(archive(...parts), { allLinks: true });
    assert.equal(readlinkSync(at("abs")), "/etc/passwd");
  });

  test("symlinks in downloads leak host files: links that lead out together are left out", async () => {
    const parts: Member[] = [
      { path: "a/", flag: "5" },
      { path: "a/b/", flag: "5" },
      { path: "a/b/root", flag: "2", target: "../.." },
      { path: "made", flag: "2", target: "a/b/root/../outside" },
      { path: "later", flag: "2", target: "not/yet/../../../outside" },
      { path: "deep", flag: "2", target: "a/b/root/a/b/root/a/../../outside" },
    ];
    const { linksLeftOut } = await unpack(archive(...parts));
    assert.deepEqual([linksLeftOut, readdirSync(at(""))], [3, ["a"]]);
    assert.equal(readlinkSync(at("a/b/root")), "../..");
  });

  test("a target that is there is not touched", async () => {
    mkdirSync(at(""));
    writeFileSync(at("mine"), "kept");
    await assert.rejects(unpack(archive({ path: "mine", body: "x" })), { kind: "AlreadyExists" });
    assert.equal(readFileSync(at("mine"), "utf8"), "kept");
    assert.ok(lstatSync(at("")).isDirectory());
  });
});
