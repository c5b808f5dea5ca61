import assert from "node:assert/strict";
import { linkSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import type { Taken, Visitor } from "./visit.ts";
import { walk } from "./walk.ts";

const never = new AbortController().signal;
/** More than a walk looks ahead in one directory, and several directories within one look. */
const FILES = 200;

function fill(root: string): string[] {
  const paths: string[] = [];
  for (const directory of ["a", "a/b", "a/b/c", "d", "empty"]) mkdirSync(join(root, directory), { recursive: true });
  for (const [directory, count] of [
    ["", 3],
    ["a", FILES],
    ["a/b", 2],
    ["a/b/c", 1],
    ["d", 5],
  ] as const) {
    for (let file = 0; file < count; file++) paths.push(join(directory, `file-${file}`));
  }
  for (const path of paths) writeFileSync(join(root, path), path);
  symlinkSync("/etc", join(root, "out"));
  linkSync(join(root, "file-0"), join(root, "d/again"));
  return [...paths, "a", "a/b", "a/b/c", "d", "empty", "out", "d/again"].sort();
}

/** Notes what it visits; what it makes of a name is its path. */
class Notes implements Visitor<string> {
  readonly seen: string[] = [];
  readonly leaves: ReadonlySet<string>;

  constructor(leaves: readonly string[] = []) {
    this.leaves = new Set(leaves);
  }

  takes({ names }: { readonly names: readonly string[] }): boolean {
    return !this.leaves.has(names.join("/"));
  }

  async visit({ names, file, entry, above }: Taken<string>): Promise<string> {
    const path = names.join("/");
    if (names.length === 0) return path;
    assert.equal(above, names.slice(0, -1).join("/"), "a name was visited before its directory");
    if (entry.type === "file") {
      const bytes = Buffer.alloc(entry.size + 1);
      const count = await file?.read(bytes, 0);
      assert.equal(bytes.toString("utf8", 0, count), path === "d/again" ? "file-0" : path);
    }
    this.seen.push(path);
    return path;
  }
}

const openFiles = () => readdirSync("/proc/self/fd").length;

test("everything is visited once, after its directory, with its own data", async () => {
  using root = temporaryDirectory();
  const expected = fill(root.path);
  const before = openFiles();
  const notes = new Notes();
  await walk({ dir: root.path }, notes, never);
  assert.deepEqual(notes.seen.sort(), expected);
  assert.equal(openFiles(), before);
});

test("what is not taken is not visited, nor what is below it", async () => {
  using root = temporaryDirectory();
  const expected = fill(root.path).filter((path) => !path.startsWith("a/b") && path !== "out");
  const notes = new Notes(["a/b", "out"]);
  await walk({ dir: root.path }, notes, never);
  assert.deepEqual(notes.seen.sort(), expected);
});

test("a walk that ends early closes what it opened ahead", async () => {
  using root = temporaryDirectory();
  fill(root.path);
  const before = openFiles();
  const failing = new Notes();
  failing.visit = async ({ names }) => {
    if (names.length > 0) throw new Error("enough");
    return "";
  };
  await assert.rejects(walk({ dir: root.path }, failing, never), /enough/);
  await assert.rejects(walk({ dir: root.path }, new Notes(), AbortSignal.abort(new Error("left"))), /left/);
  assert.equal(openFiles(), before);
});

test("names that are not taken let others have their turns, too: a sandbox can make millions", async () => {
  using root = temporaryDirectory();
  for (const name of ["a", "b", "c", "d"]) writeFileSync(join(root.path, name), "");
  const stop = new AbortController();
  let asked = 0;
  const visitor: Visitor<undefined> = {
    takes({ names }) {
      if (names.length === 0) return true;
      asked += 1;
      // Longer than the event loop may be kept.
      for (const untilMs = performance.now() + 10; performance.now() < untilMs; );
      setImmediate(() => stop.abort(new Error("somebody had a turn")));
      return false;
    },
    visit: async () => undefined,
  };
  await assert.rejects(walk({ dir: root.path }, visitor, stop.signal), /somebody had a turn/);
  assert.equal(asked, 1);
});
