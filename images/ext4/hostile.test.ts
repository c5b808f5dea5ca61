import assert from "node:assert/strict";
import { chownSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Taken, Visitor } from "../pack/visit.ts";
import { run, temporaryDirectory } from "../test-support/fixtures.ts";
import { Ext4Disk } from "./disk.ts";
import { findDirectory } from "./find.ts";
import type { Inode } from "./inode.ts";
import { readExtents } from "./inode.ts";
import { readJournal } from "./journal.ts";
import { walkExt4 } from "./walk.ts";

const never = new AbortController().signal;
const MIB = 2 ** 20;
const BLOCK = 4096;
const JOURNAL = 8;
const MAGIC = 0xc03b3998;
/** Of the superblock: features that a reader must know, and where it is. */
const [FEATURES_AT, RECOVER] = [1024 + 0x60, 0x4];
const DAMAGED = { kind: "FailedPrecondition" };

/** What a pack reads. */
class Reader implements Visitor<undefined> {
  bytes = 0;
  readonly uids: number[] = [];

  takes(): boolean {
    return true;
  }

  async visit({ entry, file }: Taken<undefined>): Promise<undefined> {
    this.uids.push(entry.uid);
    for await (const { offset, size } of file?.extents() ?? []) {
      await file?.read(Buffer.alloc(Math.min(size, MIB)), offset);
      this.bytes += size;
    }
  }
}

/** An extent: first block in the file, how many, first on the disk. */
type Extent = readonly [first: number, count: number, start: number];

function extentTree(extents: readonly Extent[]): Buffer {
  const body = Buffer.alloc(60);
  body.writeUInt16LE(0xf30a, 0);
  body.writeUInt16LE(extents.length, 2);
  body.writeUInt16LE(4, 4);
  for (const [index, [first, count, start]] of extents.entries()) {
    const at = 12 * (index + 1);
    body.writeUInt32LE(first, at);
    body.writeUInt16LE(count, at + 4);
    body.writeUInt16LE(Math.floor(start / 2 ** 32), at + 6);
    body.writeUInt32LE(start % 2 ** 32, at + 8);
  }
  return body;
}

/** A block of the journal: its head, and what is behind it. */
function journalBlock(type: number, sequence: number, words: readonly number[] = []): Buffer {
  const block = Buffer.alloc(BLOCK);
  for (const [at, word] of [MAGIC, type, sequence, ...words].entries()) block.writeUInt32BE(word, at * 4);
  return block;
}

describe("an ext4 file system that somebody made to harm its reader", () => {
  const dir = temporaryDirectory();
  const image = join(dir.path, "image");
  let clean: Buffer;
  let victim: { readonly number: number; readonly start: number };
  before(async () => {
    const tree = join(dir.path, "tree");
    mkdirSync(join(tree, "upper"), { recursive: true });
    writeFileSync(join(tree, "upper/file"), "plain");
    chownSync(join(tree, "upper/file"), 3_000_000_000, 2 ** 31);
    writeFileSync(image, "");
    truncateSync(image, 32 * MIB);
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", `${BLOCK}`, "-I", "256", "-J", "size=4", "-d", tree, image);
    clean = readFileSync(image);
    victim = await onDisk(async (disk) => {
      const upper = await findDirectory(disk, ["upper"]);
      assert.ok(upper);
      const file = await fileIn(disk);
      for await (const { start } of readExtents(disk, file)) return { number: file.number, start };
      throw new Error("a file without data");
    });
  });
  after(() => dir[Symbol.dispose]());

  async function onDisk<T>(action: (disk: Ext4Disk) => Promise<T>): Promise<T> {
    await using file = await open(image, "r");
    return await action(await Ext4Disk.open(file, never));
  }
  async function fileIn(disk: Ext4Disk): Promise<Inode> {
    for (let number = 11; ; number += 1) {
      const inode = await disk.inode(number).catch(() => undefined);
      if (inode?.type === "file" && inode.size === 5) return inode;
    }
  }
  /** In the first group's table. */
  const inodeAt = (number: number) => clean.readUInt32LE(BLOCK + 8) * BLOCK + (number - 1) * 256;
  const walked = async () => {
    const reader = new Reader();
    await onDisk((disk) => walkExt4(disk, "upper", reader));
    return reader;
  };

  test("ids are read without a sign", async () => {
    writeFileSync(image, clean);
    assert.deepEqual((await walked()).uids.slice(1), [3_000_000_000]);
    await onDisk(async (disk) => assert.equal((await fileIn(disk)).gid, 2 ** 31));
  });

  test("an attribute of a name that no kernel gives is refused", async () => {
    const entry = (index: number, name: string) => {
      const bytes = Buffer.alloc(24 + name.length);
      bytes.writeUInt32LE(0xea020000, 0);
      bytes.writeUInt8(name.length, 4);
      bytes.writeUInt8(index, 5);
      bytes.write(name, 20, "latin1");
      return bytes;
    };
    // Behind the fields of the inode.
    const at = inodeAt(victim.number) + 128 + clean.readUInt16LE(inodeAt(victim.number) + 128);
    for (const [index, name, isGood] of [
      [1, "plain", true],
      [1, "plain\0trusted.overlay.redirect", false],
      [1, "", false],
      [2, "more", false],
    ] as const) {
      const bytes = Buffer.from(clean);
      bytes.set(entry(index, name), at);
      writeFileSync(image, bytes);
      if (isGood) await walked();
      else await assert.rejects(walked(), { ...DAMAGED, message: /attribute/ }, name);
    }
  });

  test("a file of more blocks than the disk has is refused after as many", async () => {
    const bytes = Buffer.from(clean);
    const blocks = bytes.length / BLOCK - 1;
    const extents = [0, 1, 2, 3].map((n) => [n * blocks, blocks, 1] as const);
    bytes.set(extentTree(extents), inodeAt(victim.number) + 0x28);
    bytes.writeUInt32LE(4 * blocks * BLOCK, inodeAt(victim.number) + 4);
    writeFileSync(image, bytes);
    await assert.rejects(walked(), { ...DAMAGED, message: /several places/ });
  });

  test("a journal whose blocks lie behind the end gives nothing that is not the disk's", async () => {
    const bytes = Buffer.from(clean);
    const [start = 0, blocks] = [bytes.readUInt32LE(inodeAt(JOURNAL) + 0x28 + 12 + 8), 64];
    const far = 2 ** 36;
    const extents = [[0, 1, start] as const, [1, 1, far] as const, [2, blocks - 2, start + 2] as const];
    bytes.set(extentTree(extents), inodeAt(JOURNAL) + 0x28);
    // One transaction from the last block but one, over the end to the first: that is where the block of the file is to come from.
    const superblock = journalBlock(4, 0, [BLOCK, blocks, 1, 7, blocks - 2, 0, 0]);
    bytes.set(superblock, start * BLOCK);
    const [sameUuid, last] = [2, 8];
    const tags = [victim.start + 1, sameUuid, victim.start, sameUuid | last];
    bytes.set(journalBlock(1, 7, tags), (start + blocks - 2) * BLOCK);
    bytes.set(journalBlock(2, 7), (start + 2) * BLOCK);
    bytes.writeUInt32LE(bytes.readUInt32LE(FEATURES_AT) | RECOVER, FEATURES_AT);
    writeFileSync(image, bytes);
    await assert.rejects(walked(), DAMAGED);
    // With blocks of its own it is a journal.
    bytes.set(extentTree([[0, blocks, start]]), inodeAt(JOURNAL) + 0x28);
    bytes.write("other", (start + 1) * BLOCK);
    writeFileSync(image, bytes);
    const found = await onDisk((disk) => disk.block(victim.start));
    assert.equal(found.toString("latin1", 0, 5), "other");
  });
});

test("a journal that revokes more blocks than it has room for is refused before they take memory", async () => {
  const blocks = 4096;
  const places = Array.from({ length: blocks }, (_, n) => n);
  let number = 0;
  const block = async (place: number) => {
    if (place === 0) return journalBlock(4, 0, [BLOCK, blocks, 1, 7, 1, 0, 1]);
    const revoked = journalBlock(5, 7, [BLOCK]);
    for (let at = 16; at < BLOCK; at += 4) revoked.writeUInt32BE(number++, at);
    return revoked;
  };
  await assert.rejects(readJournal({ blockBytes: BLOCK, places, block }), { ...DAMAGED, message: /revokes/ });
  assert.ok(number < 2 ** 20 + 2 * BLOCK);
});
