import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeQcow2, QCOW2 } from "./qcow2.ts";
import { diskParts } from "./qcow2-bytes.ts";

const MIB = 1024 * 1024;
const KIB = 1024;
const SIZE = 520 * MIB + 512;

describe("the bytes of a disk that a computer wrote to", () => {
  let dir: string;
  before(() => {
    dir = mkdtempSync(join(tmpdir(), "dsec-qcow2-bytes-"));
    // Data, holes, and an end that is no whole cluster and before the disk's.
    writeFileSync(
      join(dir, "base"),
      Buffer.concat([randomBytes(3 * MIB + 512), Buffer.alloc(2 * MIB), randomBytes(MIB + 512)]),
    );
  });
  after(() => rmSync(dir, { recursive: true }));

  const over = (disk: string) =>
    `driver=qcow2,file.driver=file,file.filename=${disk},backing.driver=raw,backing.file.driver=file,backing.file.filename=${join(dir, "base")}`;
  /** As a computer does: over the base, in the order given. */
  function written(name: string, ...orders: readonly string[]): string {
    const path = join(dir, name);
    makeQcow2(path, SIZE);
    const words = orders.flatMap((order) => ["-c", order]);
    execFileSync("qemu-io", ["-d", "unmap", "--image-opts", over(path), ...words], { stdio: "ignore" });
    return path;
  }
  async function read(path: string, isOverBase = true): Promise<{ readonly plain: Buffer; readonly bytes: number }> {
    await using file = await open(path, "r");
    await using base = await open(join(dir, "base"), "r");
    const plain = Buffer.alloc(SIZE);
    let [at, bytes] = [0, 0];
    for await (const part of diskParts({ file, base: isOverBase ? base : undefined }, SIZE)) {
      assert.ok(part.offset >= at, "in order");
      part.bytes.copy(plain, part.offset);
      at = part.offset + part.bytes.length;
      bytes += part.bytes.length;
    }
    assert.ok(at <= SIZE);
    return { plain, bytes };
  }

  test("is what QEMU's own tools read: written, zeroed, discarded, untouched, up to the last sector", async () => {
    const path = written(
      "disk",
      ...["write -P 1 0 512", "write -P 2 1M 200k", "write -z 2M 1M", "discard 3M 128k", "write -P 3 300M 64k"],
      ...[`write -P 4 ${SIZE - 512} 512`, "write -P 5 511M 2M", "flush"],
    );
    const { plain, bytes } = await read(path);
    execFileSync("qemu-img", ["convert", "--image-opts", over(path), "-O", "raw", join(dir, "plain")]);
    assert.ok(plain.equals(readFileSync(join(dir, "plain"))));
    assert.ok(bytes < 8 * MIB, "holes are not given");
  });

  test("an empty one has the bytes of what is below it, or none", async () => {
    const path = written("empty");
    const base = readFileSync(join(dir, "base"));
    assert.ok((await read(path)).plain.subarray(0, base.length).equals(base));
    assert.equal((await read(path, false)).bytes, 0);
  });

  for (const [what, at, value] of [
    ["names another file", 8, 512n],
    ["says another size", 24, BigInt(SIZE) * 2n],
    ["keeps its data elsewhere", 72, 4n],
    ["has snapshots", 60, 1n],
    ["is encrypted", 32, 1n << 32n],
    ["has another first table", 40, 65536n],
    ["leads behind its end", QCOW2.tableAt, (1n << 40n) | (1n << 63n)],
    ["leads where no file can reach", QCOW2.tableAt, (1n << 55n) | (1n << 63n)],
    ["leads between two clusters", QCOW2.tableAt, 0x50200n],
  ] as const) {
    test(`one that ${what} is refused, and nothing else is read`, async () => {
      const path = written(`bad-${at}-${value}`, "write -P 1 0 64k", "flush");
      const fd = openSync(path, "r+");
      const word = Buffer.alloc(8);
      word.writeBigUInt64BE(value);
      writeSync(fd, word, 0, 8, at);
      closeSync(fd);
      await assert.rejects(read(path), { kind: "FailedPrecondition" });
    });
  }

  test("one that is cut off is refused", async () => {
    const path = written("cut", "write -P 1 0 64k", "flush");
    truncateSync(path, 2 * KIB);
    await assert.rejects(read(path), { kind: "FailedPrecondition" });
    truncateSync(path, 50);
    await assert.rejects(read(path), { kind: "FailedPrecondition" });
  });

  test("a cluster that is compressed is refused: a computer writes none", async () => {
    const path = written("compressed", "write -P 1 0 64k", "flush");
    const fd = openSync(path, "r+");
    const table = Number(readFileSync(path).readBigUInt64BE(QCOW2.tableAt) & 0x00ff_ffff_ffff_fe00n);
    const word = Buffer.alloc(8);
    word.writeBigUInt64BE(1n << 62n);
    writeSync(fd, word, 0, 8, table);
    closeSync(fd);
    await assert.rejects(read(path), { kind: "FailedPrecondition" });
  });
});
