import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { mount, unmount } from "#host/sys/mount.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import { DiskRoom } from "./room.ts";
import { openLayerStore } from "./store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "./test-support/fixtures.ts";
import { ociArchive } from "./test-support/oci-archive.ts";

const MIB = 2 ** 20;

async function onDisk(sizeMiB: number, use: (dir: string) => Promise<void>): Promise<void> {
  using disk = temporaryDirectory();
  mount("tmpfs", disk.path, "tmpfs", 0, `size=${sizeMiB}m`);
  try {
    await use(disk.path);
  } finally {
    unmount(disk.path);
  }
}

function freeBytes(dir: string): number {
  const { bavail, bsize } = statfsSync(dir);
  return bavail * bsize;
}

describe("room on a disk", () => {
  test("is what is free but for a reserve, looked at again as others write", async () => {
    await onDisk(64, async (dir) => {
      const room = new DiskRoom(dir);
      await room.take(20 * MIB);
      await assert.rejects(room.take(63 * MIB), { kind: "StorageFull" });
      writeFileSync(join(dir, "of-others"), Buffer.alloc(60 * MIB));
      for (const bytes of [20 * MIB, MIB]) await assert.rejects(room.take(bytes), { kind: "StorageFull" });
    });
  });

  test("is taken in small steps without a look at each, and never far beyond what there is", async () => {
    await onDisk(64, async (dir) => {
      const room = new DiskRoom(dir);
      let taken = 0;
      const take = async () => {
        for (;;) {
          await room.take(65_536);
          writeFileSync(join(dir, "file"), Buffer.alloc(65_536), { flag: "a" });
          taken += 65_536;
        }
      };
      await assert.rejects(take(), { kind: "StorageFull" });
      assert.ok(taken > 56 * MIB && freeBytes(dir) >= 2 * MIB, `${taken} taken, ${freeBytes(dir)} free`);
    });
  });
});

describe("a bomb on a small disk", () => {
  const noise = randomBytes(MIB);
  const half = archive(...Array.from({ length: 40 }, (_, at) => ({ path: `f${at}`, body: noise })));
  const bomb = zstdCompressSync(ociArchive([{ layers: [half] }]));

  test("of an image stops before the disk is full and leaves nothing", async () => {
    assert.ok(bomb.length < 8 * MIB);
    await onDisk(32, async (dir) => {
      using store = await openLayerStore(join(dir, "store"));
      let least = Number.POSITIVE_INFINITY;
      const watch = setInterval(() => {
        least = Math.min(least, freeBytes(dir));
      }, 1);
      await assert.rejects(importBytes(store, bomb, { format: "oci" }), { kind: "StorageFull" });
      clearInterval(watch);
      assert.ok(least >= MIB, `only ${least} bytes were free`);
      for (const name of ["layers", "tmp"]) assert.deepEqual(readdirSync(join(store.dir, name)), []);
    });
  });

  test("of a tree stops before the disk is full and leaves nothing", async () => {
    const tree = archive({ path: "noise", body: randomBytes(40 * MIB) });
    await onDisk(32, async (dir) => {
      using store = await openLayerStore(join(dir, "store"));
      await assert.rejects(importBytes(store, tree), { kind: "StorageFull" });
      for (const name of ["layers", "tmp"]) assert.deepEqual(readdirSync(join(store.dir, name)), []);
    });
  });
});

describe("the limit of data", () => {
  test("holds for what an image archive unpacks to, whatever is in it", async () => {
    using made = await temporaryStore();
    const bomb = gzipSync(
      archive({ path: "index.json", body: "{}" }, { path: "unused", body: Buffer.alloc(16 * MIB) }),
    );
    const limits = { ...DEFAULT_LIMITS, dataBytes: MIB };
    await assert.rejects(importBytes(made.store, bomb, { format: "oci", limits }), {
      kind: "TooLarge",
      message: /image archive/,
    });
  });

  test("holds for all layers of an image together", async () => {
    using made = await temporaryStore();
    const layer = (path: string) => archive({ path, body: Buffer.alloc(MIB) });
    const image = ociArchive([{ layers: [layer("a"), layer("b"), layer("c")] }]);
    const limits = { ...DEFAULT_LIMITS, dataBytes: 2.5 * MIB };
    await assert.rejects(importBytes(made.store, image, { format: "oci", limits }), {
      kind: "TooLarge",
      message: /tree/,
    });
    const enough = { ...DEFAULT_LIMITS, dataBytes: 3 * MIB };
    assert.equal((await importBytes(made.store, image, { format: "oci", limits: enough })).layers.length, 3);
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  });
});
