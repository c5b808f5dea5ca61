import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { setXattr } from "#host/sys/test-support/xattr.ts";
import { packUpper } from "../pack/pack.ts";
import type { Taken, Visitor, Walk } from "../pack/visit.ts";
import { walk } from "../pack/walk.ts";
import type { LayerStore } from "../store.ts";
import { run, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { makeNastyTree } from "../test-support/nasty-tree.ts";
import { Ext4Disk } from "./disk.ts";
import { walkExt4 } from "./walk.ts";

const never = new AbortController().signal;
const MIB = 2 ** 20;
/** More than fit in the first level of a tree of extents, and of the index of a directory. */
const MANY = 3000;
/** u::rw, u:7:rw, g::r, g:8:r, m::rw, o::r, as the kernel takes it. */
const ACL = Buffer.from(
  "0200000001000600ffffffff020006000700000004000400ffffffff080004000800000010000600ffffffff20000400ffffffff",
  "hex",
);

/** Names and types, and all data read: what a pack does, without a layer. */
class Reader implements Visitor<undefined> {
  readonly seen: string[] = [];

  takes(): boolean {
    return true;
  }

  async visit({ names, entry, file }: Taken<undefined>): Promise<undefined> {
    this.seen.push(`${names.join("/")} ${entry.type} ${entry.size}`);
    for await (const { offset, size } of file?.extents() ?? []) {
      await file?.read(Buffer.alloc(Math.min(size, MIB)), offset);
    }
  }
}

async function onDisk<T>(path: string, action: (disk: Ext4Disk) => Promise<T>, signal = never): Promise<T> {
  await using file = await open(path, "r");
  return await action(await Ext4Disk.open(file, signal));
}

/** Equal for equal trees in one store. */
async function layerOf(store: LayerStore, walked: Walk): Promise<string> {
  const { digest } = await packUpper({
    store,
    walk: walked,
    options: { exclude: [], keep: ["credentials", "history"] },
    signal: never,
  });
  return digest;
}

for (const [title, words, sizeMiB, fitsAll] of [
  ["blocks of 1 KiB", ["-b", "1024", "-g", "4096", "-N", "20000"], 120, false],
  ["blocks of 4 KiB", ["-b", "4096"], 200, true],
] as const) {
  describe(`an ext4 file system with ${title}`, () => {
    const dir = temporaryDirectory();
    const [image, mount, copy] = ["image", "mount", "copy"].map((name) => join(dir.path, name)) as [
      string,
      string,
      string,
    ];
    const upper = join(mount, "upper");
    let made: Awaited<ReturnType<typeof temporaryStore>>;
    before(async () => {
      made = await temporaryStore();
      writeFileSync(image, "");
      truncateSync(image, sizeMiB * MIB);
      run("mke2fs", "-q", "-F", "-t", "ext4", "-I", "256", ...words, "-J", "size=4", image);
      mkdirSync(mount);
      run("mount", "-o", "loop,noatime", image, mount);
      mkdirSync(join(upper, "many"), { recursive: true });
      mkdirSync(join(dir.path, "nasty"));
      makeNastyTree(join(dir.path, "nasty"));
      // Long links and attributes have no room in small blocks: all else is there.
      run("sh", "-c", `cp -a "$1"/. "$2" ${fitsAll ? "" : "2>/dev/null || :"}`, "sh", join(dir.path, "nasty"), upper);
      for (let n = 0; n < MANY; n++) writeFileSync(join(upper, `many/${n}`), `${n}`);
      // Each name that goes leaves a hole between two files.
      for (let n = 0; n < MANY; n += 2) rmSync(join(upper, `many/${n}`));
      writeFileSync(join(upper, "scattered"), Buffer.alloc(10 * MIB, "scattered"));
      // Whose owner wants no extents.
      writeFileSync(join(upper, "mapped"), "");
      run("chattr", "-e", join(upper, "mapped"));
      writeFileSync(join(upper, "mapped"), Buffer.alloc(9 * MIB, "mapped"));
      truncateSync(join(upper, "mapped"), 40 * MIB);
      setXattr(join(upper, "many/1"), "system.posix_acl_access", ACL);
      setXattr(join(upper, "many"), "system.posix_acl_default", ACL);
      // More than has room in an inode.
      setXattr(join(upper, "many/3"), "user.long", Buffer.alloc(600, "long"));
    });
    after(() => {
      made[Symbol.dispose]();
      run("umount", mount);
      dir[Symbol.dispose]();
    });

    const layer = (path: string) =>
      onDisk(path, (disk) => layerOf(made.store, (visitor) => walkExt4(disk, "upper", visitor)));
    const mountedLayer = () => layerOf(made.store, (visitor, signal) => walk({ dir: upper }, visitor, signal));

    test("is read as the kernel reads it, to the last attribute, once it was frozen", async () => {
      run("fsfreeze", "-f", mount);
      copyFileSync(image, copy);
      run("fsfreeze", "-u", mount);
      assert.equal(await onDisk(copy, async ({ superblock }) => superblock.journal), undefined);
      assert.equal(await layer(copy), await mountedLayer());
    });

    test("that was cut off is read with what lies in its journal", async () => {
      run("sync", "-f", mount);
      for (let round = 0; round < 3; round++) {
        mkdirSync(join(upper, `round-${round}/below`), { recursive: true });
        writeFileSync(join(upper, `round-${round}/below/file`), Buffer.alloc(100_000, `${round}`));
        rmSync(join(upper, `round-${round - 1}`), { recursive: true, force: true });
        // Writes the journal, and leaves the rest for later.
        run("sync", join(upper, `round-${round}/below/file`), upper);
        copyFileSync(image, copy);
        assert.notEqual(await onDisk(copy, async ({ superblock }) => superblock.journal), undefined);
        assert.equal(await layer(copy), await mountedLayer());
      }
      // The journal had something to say: without it the disk is another.
      const bytes = readFileSync(copy);
      bytes.writeUInt32LE(bytes.readUInt32LE(1024 + 0x60) & ~0x4, 1024 + 0x60);
      writeFileSync(copy, bytes);
      const plain = await layer(copy).catch(String);
      assert.notEqual(plain, await mountedLayer());
    });

    test("that somebody has scribbled over is refused, or read: nothing goes on for ever, nothing else is thrown", async () => {
      copyFileSync(image, copy);
      await using file = await open(copy, "r+");
      const { size } = await file.stat();
      for (let seed = 1; seed <= 30; seed++) {
        const random = randomFrom(seed);
        // Where its structures are, most of the time.
        for (let n = 0; n < 400; n++) {
          await file.write(Buffer.of(Math.floor(random() * 256)), 0, 1, Math.floor(random() ** 4 * size));
        }
        await readOrRefuse(copy);
        if (seed % 5 === 0) copyFileSync(image, copy);
      }
    });

    test("that is cut short, empty, or none at all is refused", async () => {
      for (const size of [0, 1024, 4096, 5 * MIB]) {
        writeFileSync(copy, readFileSync(image).subarray(0, size));
        await assert.rejects(
          onDisk(copy, (disk) => walkExt4(disk, "upper", new Reader())),
          { kind: "FailedPrecondition" },
        );
      }
      writeFileSync(copy, Buffer.alloc(MIB, 7));
      await assert.rejects(
        onDisk(copy, (disk) => walkExt4(disk, "upper", new Reader())),
        {
          kind: "FailedPrecondition",
        },
      );
      const reader = new Reader();
      await onDisk(image, (disk) => walkExt4(disk, "none", reader));
      assert.deepEqual(reader.seen, []);
    });

    test("is not read any further when nobody wants it any more", async () => {
      const stop = new AbortController();
      const reading = onDisk(image, (disk) => walkExt4(disk, "upper", new Reader()), stop.signal);
      stop.abort(new Error("left"));
      await assert.rejects(reading, /left/);
    });
  });
}

async function readOrRefuse(path: string): Promise<void> {
  const reader = new Reader();
  try {
    await onDisk(path, (disk) => walkExt4(disk, "upper", reader), AbortSignal.timeout(60_000));
  } catch (error) {
    assert.ok(error instanceof SandboxError && error.kind === "FailedPrecondition", String(error));
  }
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
