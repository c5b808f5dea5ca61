import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { Original } from "./original.ts";

const SECOND_MS = 1_000;
const nameOf = (text: string) => Buffer.from(text);
const statsOf = (...path: string[]) => lstatSync(join(...path), { bigint: true });
const openFiles = () => readdirSync("/proc/self/fd").length;
/** A copy that is made when all that was written has been so for long. */
const laterOf = (dir: string) => new Original({ dir, atMs: Date.now() + SECOND_MS });

test("a file that is what the copy has is read from where that was made of", () => {
  using root = temporaryDirectory();
  mkdirSync(join(root.path, "a/b"), { recursive: true });
  for (const path of ["one", "a/two", "a/b/three"]) writeFileSync(join(root.path, path), path);
  const before = openFiles();
  {
    using original = laterOf(root.path);
    const read = (name: string, ...path: string[]) =>
      Buffer.from(original.read(nameOf(name), statsOf(root.path, ...path, name)) ?? []).toString();
    assert.equal(read("one"), "one");
    original.descend(nameOf("a"));
    original.descend(nameOf("b"));
    assert.equal(read("three", "a/b"), "a/b/three");
    original.ascend(statsOf(root.path, "a").ino);
    assert.equal(read("two", "a"), "a/two");
    original.ascend(statsOf(root.path).ino);
    assert.equal(read("one"), "one");
  }
  assert.equal(openFiles(), before);
});

test("one that was written since, or shortly before, is not", () => {
  using root = temporaryDirectory();
  const path = join(root.path, "file");
  writeFileSync(path, "then");
  const copied = statsOf(path);
  using now = new Original({ dir: root.path, atMs: Number(copied.ctimeNs / 1_000_000n) });
  assert.equal(now.read(nameOf("file"), copied), undefined, "its next change may have the same time");
  using original = laterOf(root.path);
  assert.ok(original.read(nameOf("file"), copied));
  // The clock of the file system stands still for some milliseconds.
  while (statsOf(path).ctimeNs === copied.ctimeNs) writeFileSync(path, "since");
  writeFileSync(path, "next");
  assert.equal(original.read(nameOf("file"), copied), undefined);
  rmSync(path);
  assert.equal(original.read(nameOf("file"), copied), undefined);
});

test("what has taken its place is left alone: pipes keep what is in them, links are not followed", () => {
  using root = temporaryDirectory();
  const path = join(root.path, "file");
  writeFileSync(join(root.path, "other"), "else");
  writeFileSync(path, "then");
  const copied = statsOf(path);
  using original = laterOf(root.path);
  renameSync(join(root.path, "other"), path);
  assert.equal(original.read(nameOf("file"), copied), undefined);
  renameSync(path, join(root.path, "other"));
  symlinkSync("other", path);
  assert.equal(original.read(nameOf("file"), statsOf(root.path, "other")), undefined);
  rmSync(path);
  execFileSync("mkfifo", [path]);
  const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  writeSync(pipe, "kept");
  assert.equal(original.read(nameOf("file"), copied), undefined);
  const held = Buffer.alloc(4);
  assert.equal(readSync(pipe, held), 4);
  assert.equal(held.toString(), "kept");
  rmSync(path);
  mkdirSync(path);
  assert.equal(original.read(nameOf("file"), copied), undefined);
});

test("where directories were moved, nothing is read any more, and nothing outside ever", () => {
  using root = temporaryDirectory();
  mkdirSync(join(root.path, "tree/a/b"), { recursive: true });
  writeFileSync(join(root.path, "tree/file"), "1");
  writeFileSync(join(root.path, "file"), "outside");
  const [tree, file] = [statsOf(root.path, "tree"), statsOf(root.path, "tree/file")];
  using original = laterOf(join(root.path, "tree"));
  original.descend(nameOf("a"));
  original.descend(nameOf("b"));
  renameSync(join(root.path, "tree/a/b"), join(root.path, "b"));
  original.ascend(statsOf(root.path, "tree/a").ino);
  assert.equal(original.read(nameOf("file"), statsOf(root.path, "file")), undefined);
  original.ascend(tree.ino);
  assert.equal(original.read(nameOf("file"), file), undefined);
  using other = laterOf(join(root.path, "tree"));
  symlinkSync("..", join(root.path, "tree/link"));
  other.descend(nameOf("link"));
  assert.equal(other.read(nameOf("file"), statsOf(root.path, "file")), undefined);
});
