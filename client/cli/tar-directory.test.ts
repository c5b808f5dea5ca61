import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { after, before, describe, test } from "node:test";
import { BATCH_BYTES } from "#core/tar/batch.ts";
import { tarDirectory } from "./tar-directory.ts";

/** Unpacks with Debian's tar: a reader of nobody's making but its own. */
async function unpack(source: string, target: string): Promise<void> {
  mkdirSync(target);
  const tar = spawn("tar", ["-xf", "-", "-C", target, "--numeric-owner"], { stdio: ["pipe", "inherit", "inherit"] });
  const ended = new Promise<number | null>((resolve) => tar.on("close", resolve));
  await pipeline(Readable.from(tarDirectory(source)), tar.stdin);
  assert.equal(await ended, 0);
}

async function bytesOf(source: string): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(tarDirectory(source)));
}

describe("tarDirectory", () => {
  let root = "";
  let tree = "";
  before(() => {
    root = mkdtempSync(join(tmpdir(), "dsec-tar-"));
    tree = join(root, "tree");
    mkdirSync(tree);
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  test("contents, modes, links and times to the nanosecond survive", async () => {
    writeFileSync(join(tree, "script"), "#!/bin/sh\n");
    chmodSync(join(tree, "script"), 0o4755);
    utimesSync(join(tree, "script"), 1_500_000_000, 1_500_000_000.123456);
    linkSync(join(tree, "script"), join(tree, "same"));
    symlinkSync("/etc/passwd", join(tree, "link"));
    lutimesSync(join(tree, "link"), 5, 5);
    mkdirSync(join(tree, "deep/er"), { recursive: true });
    writeFileSync(join(tree, "deep/er/empty"), "");
    execFileSync("mkfifo", [join(tree, "fifo")]);
    const copy = join(root, "copy");
    await unpack(tree, copy);
    assert.equal(readFileSync(join(copy, "script"), "utf8"), "#!/bin/sh\n");
    const [before, after] = [tree, copy].map((base) => statSync(join(base, "script"), { bigint: true }));
    assert.equal(after?.mode, before?.mode);
    assert.equal(after?.mtimeNs, before?.mtimeNs);
    assert.equal(statSync(join(copy, "same")).ino, statSync(join(copy, "script")).ino);
    assert.equal(readlinkSync(join(copy, "link")), "/etc/passwd");
    assert.equal(statSync(join(copy, "deep/er/empty")).size, 0);
    assert.ok(statSync(join(copy, "fifo")).isFIFO());
  });

  test("no part is lost that ends where a batch does", async () => {
    const one = join(root, "one");
    mkdirSync(one);
    writeFileSync(join(one, "file"), "");
    const around = (await bytesOf(one)).length;
    for (let size = BATCH_BYTES - 8 * 1024; size <= BATCH_BYTES; size += 512) {
      truncateSync(join(one, "file"), size);
      assert.equal((await bytesOf(one)).length, around + size, `a file of ${size} bytes`);
    }
  });

  test("names and targets are bytes, of any length that Linux takes", async () => {
    const odd = Buffer.concat([Buffer.from(`${tree}/`), Buffer.from([0xff, 0xfe, 0x0a, 0x20])]);
    writeFileSync(odd, "odd");
    const long = "n".repeat(255);
    mkdirSync(join(tree, long));
    writeFileSync(join(tree, long, long), "long");
    symlinkSync("t".repeat(1000), join(tree, "far"));
    const copy = join(root, "names");
    await unpack(tree, copy);
    assert.equal(
      readFileSync(Buffer.concat([Buffer.from(`${copy}/`), Buffer.from([0xff, 0xfe, 0x0a, 0x20])]), "utf8"),
      "odd",
    );
    assert.equal(readFileSync(join(copy, long, long), "utf8"), "long");
    assert.equal(readlinkSync(join(copy, "far")), "t".repeat(1000));
  });

  test("an unchanged directory gives the same bytes, owners are 0", async () => {
    const [one, two] = [await bytesOf(tree), await bytesOf(tree)];
    assert.ok(one.equals(two));
    const listing = execFileSync("tar", ["-tvf", "-", "--numeric-owner"], { input: one, encoding: "utf8" });
    for (const line of listing.trim().split("\n")) assert.match(line, / 0\/0 /);
  });

  test("a tree of many blocks keeps every byte", async () => {
    const big = join(root, "big");
    mkdirSync(big);
    const content = Buffer.alloc(3_000_001, "0123456789");
    writeFileSync(join(big, "file"), content);
    await unpack(big, join(root, "big copy"));
    assert.ok(readFileSync(join(root, "big copy/file")).equals(content));
  });

  test("links inside are not followed, the directory itself may be one", async () => {
    const outside = join(root, "outside");
    mkdirSync(outside);
    writeFileSync(join(outside, "secret"), "secret");
    const inside = join(root, "inside");
    mkdirSync(inside);
    symlinkSync(outside, join(inside, "way out"));
    symlinkSync(inside, join(root, "way in"));
    const bytes = await bytesOf(join(root, "way in"));
    assert.ok(!bytes.includes("secret"));
    assert.ok(bytes.includes("way out"));
  });

  test("a missing directory, or a file, is refused before the first byte", async () => {
    await assert.rejects(bytesOf(join(root, "nowhere")), { kind: "NotFound", message: /nowhere does not exist/ });
    writeFileSync(join(root, "plain"), "");
    await assert.rejects(bytesOf(join(root, "plain")), {
      kind: "InvalidArgument",
      message: /plain is not a directory/,
    });
  });

  test("a file that shrinks while it is read breaks the stream", async () => {
    const shrinking = join(root, "shrinking");
    mkdirSync(shrinking);
    writeFileSync(join(shrinking, "file"), Buffer.alloc(2_000_000));
    const stream = tarDirectory(shrinking);
    await stream.next();
    truncateSync(join(shrinking, "file"), 10);
    await assert.rejects(Array.fromAsync(stream), { kind: "FailedPrecondition", message: /changed while it was read/ });
  });
});
