import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, renameSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";
import { MECHANISMS } from "#host/lazy/requests.ts";
import { MNT, unmount } from "#host/sys/mount.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { PIECE_BYTES } from "../blobs/descriptor.ts";
import { hexOf } from "../digest.ts";
import { framesKey, tableKey, tableText } from "../store/frames.ts";
import { LazyRig, piecesHash, readPieces } from "./test-support/rig.ts";

const run = promisify(execFile);

for (const mechanism of MECHANISMS) {
  describe(`lazy blobs over ${mechanism}`, () => {
    test("only what is read is fetched, every byte is right, and a complete blob says so", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("one", 40);
      const node = await rig.open();
      const [path = ""] = await node.acquire([digest]);
      assert.equal(await readPieces(path, 30, 31), piecesHash(data, 30, 31));
      const first = await rig.report(digest);
      assert.ok(first.fetchedBytes > 0 && first.fetchedBytes < data.length / 2, `${first.fetchedBytes} bytes`);
      assert.ok(first.misses > 0);
      assert.equal(await readPieces(path, 0, 40), piecesHash(data, 0, 40));
      assert.equal((await rig.report(digest)).fetchedBytes, data.length);
    });

    test("a killed filler, a killed node and both: readers wait, or the gap is told", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("two", 60);
      const [path = ""] = await (await rig.open()).acquire([digest]);
      // The store is away, so that readers must wait.
      renameSync(rig.storeDir, `${rig.storeDir}.away`);
      const reading = readPieces(path, 10, 20);
      await rig.logged(/cannot be fetched/);
      process.kill(rig.node.pid, "SIGKILL");
      await rig.logged(/another takes its place/);
      await rig.report(digest);
      await rig.abandon();
      const next = await rig.open({ adopted: [digest] });
      assert.equal(next.hasGap, false);
      renameSync(`${rig.storeDir}.away`, rig.storeDir);
      assert.equal(await reading, piecesHash(data, 10, 20));
      const { pid } = next;
      const startTicks = processStartTicks(pid);
      await rig.abandon();
      process.kill(pid, "SIGKILL");
      while (processStartTicks(pid) === startTicks) await immediate();
      assert.equal((await rig.open()).hasGap, true);
    });

    test("with the store away what is here works, a miss fails within the deadline, and it heals by itself", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("three", 8);
      // Too short for a busy machine now and then: what must succeed is asked for again.
      const node = await rig.open({ deadlineMs: 300 });
      const [path = ""] = await insist(() => node.acquire([digest]));
      await insist(() => readPieces(path, 0, 1));
      renameSync(rig.storeDir, `${rig.storeDir}.away`);
      await assert.rejects(readPieces(path, 5, 6), /Input\/output error/);
      assert.equal(await readPieces(path, 0, 1), piecesHash(data, 0, 1));
      await rig.logged(/cannot be fetched/);
      while (node.status.trouble === undefined || node.status.failedReads === 0) await rig.report(digest);
      assert.ok(node.status.lastFailure);
      renameSync(`${rig.storeDir}.away`, rig.storeDir);
      assert.equal(await insist(() => readPieces(path, 5, 6)), piecesHash(data, 5, 6));
      await rig.logged(/answers again/);
      while (node.status.trouble !== undefined) await insist(() => readPieces(path, 6, 7));
      while (node.status.cachedBytes < 2 * PIECE_BYTES) await rig.report(digest);
    });

    test("damaged data is never shown", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("four", 4);
      const damaged = Buffer.from(data);
      damaged.writeUInt8((damaged[2 * PIECE_BYTES] ?? 0) ^ 1, 2 * PIECE_BYTES);
      await rig.put(`blobs/${hexOf(digest)}/data`, damaged);
      const [path = ""] = await (await rig.open()).acquire([digest]);
      await assert.rejects(readPieces(path, 2, 3), /Input\/output error/);
      await rig.logged(/damaged/);
      await rig.put(`blobs/${hexOf(digest)}/data`, data);
      assert.equal(await readPieces(path, 2, 3), piecesHash(data, 2, 3));
    });

    test("data in frames is read as any other, and a frame or a table that lies is never shown, and heals when it is pushed anew", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data, table, bytes } = await rig.framedBlob("framed", 12);
      assert.ok(bytes.length < data.length / 4, `${bytes.length} bytes`);
      const [path = ""] = await (await rig.open()).acquire([digest]);
      assert.equal(await readPieces(path, 0, 2), piecesHash(data, 0, 2));
      const [key, damaged] = [framesKey(digest, table), Buffer.from(bytes)];
      damaged.fill(0xff, bytes.length >> 1);
      await rig.put(key, damaged);
      await assert.rejects(readPieces(path, 11, 12), /Input\/output error/);
      await rig.logged(/the data of blob .* is damaged/);
      await rig.put(key, bytes);
      await rig.put(tableKey(digest), Buffer.from("{}"));
      await assert.rejects(readPieces(path, 11, 12), /Input\/output error/);
      await rig.put(tableKey(digest), Buffer.from(tableText(table)));
      assert.equal(await insist(() => readPieces(path, 11, 12)), piecesHash(data, 11, 12));
      assert.equal(await readPieces(path, 0, 12), piecesHash(data, 0, 12));
      assert.equal((await rig.report(digest)).fetchedBytes, data.length);
    });

    test("a cache survives a restart, and blobs out of use leave it when it is full", async () => {
      await using rig = new LazyRig(mechanism);
      const [old, kept, last] = [await rig.blob("old", 8), await rig.blob("kept", 8), await rig.blob("last", 8)];
      const limits = { cacheBytes: 20 * PIECE_BYTES };
      const node = await rig.open(limits);
      const [oldPath = "", keptPath = ""] = await node.acquire([old.digest, kept.digest]);
      await Promise.all([readPieces(oldPath, 0, 8), readPieces(keptPath, 0, 8)]);
      await flushed(rig, old.digest, 8);
      await flushed(rig, kept.digest, 8);
      await rig.abandon();
      renameSync(rig.storeDir, `${rig.storeDir}.away`);
      const next = await rig.open({ ...limits, adopted: [old.digest, kept.digest] });
      assert.equal(await readPieces(keptPath, 0, 8), piecesHash(kept.data, 0, 8));
      renameSync(`${rig.storeDir}.away`, rig.storeDir);
      await next.release([old.digest]);
      const [path = ""] = await next.acquire([last.digest]);
      assert.equal(await readPieces(path, 0, 8), piecesHash(last.data, 0, 8));
      assert.deepEqual(readdirSync(rig.cacheDir).sort(), [kept.digest, last.digest].map(hexOf).sort());
      assert.equal(await readPieces(keptPath, 0, 8), piecesHash(kept.data, 0, 8));
    });

    test("a cache that is full of what is in use gives errors for misses, and nothing else fails", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("five", 8);
      const [path = ""] = await (await rig.open({ cacheBytes: 3 * PIECE_BYTES })).acquire([digest]);
      assert.equal(await readPieces(path, 0, 1), piecesHash(data, 0, 1));
      await assert.rejects(readPieces(path, 0, 8), /Input\/output error/);
      await rig.logged(/full of what sandboxes use/);
      assert.equal(await readPieces(path, 0, 1), piecesHash(data, 0, 1));
    });

    test("a blob that somebody has open stays, although nothing holds it", async (context) => {
      if (mechanism === "fuse")
        return context.skip("files of FUSE are not those of the cache: a reader of one that left gets an error");
      await using rig = new LazyRig(mechanism);
      const [first, second] = [await rig.blob("first", 8), await rig.blob("second", 8)];
      const node = await rig.open({ cacheBytes: 12 * PIECE_BYTES });
      const [path = ""] = await node.acquire([first.digest]);
      await readPieces(path, 0, 8);
      const reader = openSync(path, "r");
      node.release([first.digest]);
      const [other = ""] = await node.acquire([second.digest]);
      await assert.rejects(readPieces(other, 0, 8), /Input\/output error/);
      assert.equal(await readPieces(path, 0, 8), piecesHash(first.data, 0, 8));
      closeSync(reader);
      assert.equal(await readPieces(other, 0, 8), piecesHash(second.data, 0, 8));
      assert.deepEqual(readdirSync(rig.cacheDir), [hexOf(second.digest)]);
    });

    test("a full disk below the cache gives errors for misses, and the filler goes on", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("seven", 40);
      mkdirSync(rig.cacheDir);
      // File systems in memory have no events before data is read.
      const image = join(rig.dir, "disk");
      closeSync(openSync(image, "wx"));
      truncateSync(image, 5 * 2 ** 20);
      await run("mkfs.ext4", ["-q", "-O", "^has_journal", image]);
      await run("mount", ["-o", "loop", image, rig.cacheDir]);
      try {
        const node = await rig.open();
        const [path = ""] = await node.acquire([digest]);
        assert.equal(await readPieces(path, 0, 1), piecesHash(data, 0, 1));
        const { pid } = node;
        await assert.rejects(readPieces(path, 0, 40), /Input\/output error/);
        await rig.logged(/no room|full/);
        assert.equal(await readPieces(path, 0, 1), piecesHash(data, 0, 1));
        assert.equal(node.pid, pid);
      } finally {
        unmount(rig.cacheDir, MNT.DETACH);
      }
    });

    test("what a run touched is kept with the blob, and the next cold start fetches it unasked", async () => {
      await using rig = new LazyRig(mechanism);
      const { digest, data } = await rig.blob("six", 40);
      const trace = join(rig.storeDir, `blobs/${hexOf(digest)}/trace.json`);
      const [path = ""] = await (await rig.open()).acquire([digest]);
      for (const piece of [7, 25]) await readPieces(path, piece, piece + 1);
      while (statSync(trace, { throwIfNoEntry: false }) === undefined) await rig.report(digest);
      assert.deepEqual(JSON.parse(readFileSync(trace, "utf8")).pieces.flat().includes(25), true);
      await rig.node.end();
      const node = await rig.open({ cacheDir: join(rig.dir, "cold") });
      const [cold = ""] = await node.acquire([digest]);
      while ((await rig.report(digest)).fetchedBytes < 2 * PIECE_BYTES) await immediate();
      assert.equal((await rig.report(digest)).misses, 0);
      assert.equal(await readPieces(cold, 25, 26), piecesHash(data, 25, 26));
      assert.equal((await rig.report(digest)).misses, 0);
    });
  });
}

/** Until it does not reject. */
async function insist<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch {
      await immediate();
    }
  }
}

/** Resolves when the cache has noted on the disk that all pieces are here. */
async function flushed(rig: LazyRig, digest: Parameters<typeof hexOf>[0], pieces: number): Promise<void> {
  const path = join(rig.cacheDir, hexOf(digest), "present");
  while (readFileSync(path).reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0) < pieces) {
    await immediate();
  }
}
