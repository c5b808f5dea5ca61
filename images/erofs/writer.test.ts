import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { mountErofs, unmountErofs } from "#host/mounts/erofs.ts";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { importDirectory } from "../test-support/import-directory.ts";
import { fsck, mounted, snapshot } from "../test-support/inspect.ts";
import { makeNastyTree } from "../test-support/nasty-tree.ts";
import { crc32c } from "./crc32c.ts";
import { Inode } from "./inode.ts";
import { type DataDevice, draftImage } from "./writer.ts";

const DATA = { blocks: 1, tag: "0".repeat(64) };

describe("an EROFS image", () => {
  test("shows every inode of a nasty tree to the kernel as it was, and passes fsck", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    makeNastyTree(source.path);
    const { layers } = await importDirectory(source.path, { store: made.store });
    const digest = layers[0];
    assert.ok(digest !== undefined);
    using layer = await mounted(made.store, digest);
    const [expected, found] = [snapshot(source.path), snapshot(layer.path)];
    for (const [path, line] of expected) assert.equal(found.get(path), line, JSON.stringify(path));
    assert.equal(found.size, expected.size);
    await fsck(made.store, digest);
  });

  test("is readable through loop devices too", async () => {
    using source = temporaryDirectory();
    using made = await temporaryStore();
    writeFileSync(join(source.path, "file"), "through a loop device");
    const { layers } = await importDirectory(source.path, { store: made.store });
    const digest = layers[0];
    assert.ok(digest !== undefined);
    using layer = await mounted(made.store, digest, "loop");
    assert.equal(readFileSync(join(layer.path, "file"), "utf8"), "through a loop device");
  });

  test("finds each of 70,000 names in one directory", async () => {
    const children = new Map<string, Inode>();
    for (let index = 0; index < 70_000; index++) {
      children.set(`entry-${(index * 7919) % 70_000}`, leaf(index));
    }
    using made = await temporaryStore();
    using mountPoint = await mountedTree(made.path, directory(children));
    assert.equal(readdirSync(mountPoint.path).length, 70_000);
    for (let index = 0; index < 70_000; index += 97) {
      assert.equal(statSync(join(mountPoint.path, `entry-${(index * 7919) % 70_000}`)).mtimeMs, index * 1000);
    }
  });

  test("is the same byte for byte whatever the order in which names arrived", async () => {
    const names = Array.from({ length: 500 }, (_, index) => `name-${index}`);
    const forwards = new Map(names.map((name, index) => [name, leaf(index)]));
    const backwards = new Map([...names.entries()].reverse().map(([index, name]) => [name, leaf(index)]));
    const [first, second] = [await imageOf(directory(forwards)), await imageOf(directory(backwards))];
    assert.deepEqual(first, second);
  });

  test("has another UUID when the data differs: overlays tell layers apart by it", async () => {
    const uuid = async (tag: string): Promise<string> =>
      (await imageOf(directory(new Map()), { ...DATA, tag })).toString("hex", 1024 + 48, 1024 + 64);
    assert.notEqual(await uuid("a".repeat(64)), await uuid("b".repeat(64)));
  });
});

test("crc32c gives the check value of its definition", () => {
  // The published check value is inverted at the end; the superblock's is not.
  assert.equal((crc32c(Buffer.from("123456789")) ^ 0xffff_ffff) >>> 0, 0xe3069283);
});

function attributes(mtimeS: number) {
  return { mode: 0o755, uid: 0, gid: 0, mtimeS, mtimeNs: 0, xattrs: undefined };
}

function leaf(mtimeS: number): Inode {
  return new Inode(attributes(mtimeS), { type: "file", size: 0, chunks: [] });
}

function directory(children: Map<string, Inode>): Inode {
  return new Inode(attributes(0), { type: "directory", children });
}

async function imageOf(root: Inode, data: DataDevice = DATA): Promise<Buffer> {
  return (await draftImage(root)).finish([data], [0, 1]);
}

async function mountedTree(path: string, root: Inode): Promise<{ readonly path: string } & Disposable> {
  const data = join(path, "data");
  const files = { metadata: join(path, "metadata"), devices: [data], target: join(path, "target") };
  writeFileSync(files.metadata, await imageOf(root));
  writeFileSync(data, Buffer.alloc(4096));
  mkdirSync(files.target);
  mountErofs(files);
  return { path: files.target, [Symbol.dispose]: () => unmountErofs(files.target) };
}
