import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { mountAt } from "#host/sys/mountinfo.ts";
import { fill } from "./test-support/fill.ts";
import { openVolume, type Volume } from "./volume.ts";

const MIB = 1024 * 1024;

let root: string;
let options: { dataDir: string; runDir: string; sizeMiB: number };
let volume: Volume;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "dsec-volume-"));
  options = { dataDir: join(root, "data"), runDir: join(root, "run"), sizeMiB: 512 };
});
afterEach(async () => {
  for (const id of volume.list()) await volume.removeUpper(id);
  await volume[Symbol.asyncDispose]();
  assert.equal(mountAt(join(options.runDir, "volume")), undefined);
  rmSync(root, { recursive: true });
});

async function copyOf(from: string, id: string, limitBytes?: number): Promise<void> {
  await using reading = await volume.readUpper(from);
  await reading.copyTo(id, limitBytes);
}

/** Of the volume, when what waits to be written is. */
function freeBytes(dir: string): number {
  execFileSync("sync", ["-f", dir]);
  const { bavail, bsize } = statfsSync(dir);
  return bavail * bsize;
}

describe("copies", () => {
  beforeEach(async () => {
    volume = await openVolume(options);
    assert.equal(volume.copies, true, volume.reason);
  });

  test("a copy has what there was, shares it, and each goes its own way from there", async () => {
    const from = volume.createUpper("s1-a", undefined);
    writeFileSync(join(from.upperDir, "big"), randomBytes(32 * MIB));
    mkdirSync(join(from.workDir, "work", "incompat", "volatile"), { recursive: true });
    const freeBefore = freeBytes(from.upperDir);
    await copyOf("s1-a", "s1-b", 8 * MIB);
    const copy = volume.openUpper("s1-b");
    assert.deepEqual(readdirSync(copy.workDir), [], "an overlay would refuse the other's");
    writeFileSync(join(from.upperDir, "later"), "");
    writeFileSync(join(copy.upperDir, "own"), "");
    assert.deepEqual(
      [readdirSync(copy.upperDir), readdirSync(from.upperDir)],
      [
        ["big", "own"],
        ["big", "later"],
      ],
    );
    const taken = freeBefore - freeBytes(from.upperDir);
    assert.ok((volume.usage("s1-a") ?? 0) > 32 * MIB && taken < 8 * MIB, `${taken} bytes were taken`);
    assert.ok(fill(copy.upperDir, 64 * 1024) > 4 * MIB, "its limit counts what it writes, not what it shares");
  });

  test("what is read is a copy that nobody changes; it is no upper, and goes when it is let go or its reader dies", async () => {
    const { upperDir } = volume.createUpper("s1-a", undefined);
    writeFileSync(join(upperDir, "file"), "then");
    {
      await using reading = await volume.readUpper("s1-a");
      writeFileSync(join(upperDir, "file"), "now");
      assert.equal(readFileSync(join(reading.dir, "file"), "utf8"), "then");
      assert.throws(() => writeFileSync(join(reading.dir, "file"), ""), { code: "EROFS" });
      assert.deepEqual([...volume.list()], ["s1-a"]);
    }
    const left = await volume.readUpper("s1-a");
    volume = await openVolume(options);
    assert.equal(existsSync(left.dir), false);
  });

  test("writers are held for the moment alone: what they write as soon as they are let go is not in it", async () => {
    const { upperDir } = volume.createUpper("s1-a", undefined);
    for (let round = 0; round < 20; round += 1) {
      const then = randomBytes(16).toString("hex");
      for (let file = 0; file < 50; file += 1) writeFileSync(join(upperDir, `file-${file}`), then);
      const calls: string[] = [];
      const still = {
        hold: async () => void calls.push("hold"),
        letGo: () => {
          calls.push("let go");
          for (let file = 0; file < 50; file += 1) writeFileSync(join(upperDir, `file-${file}`), "later");
          mkdirSync(join(upperDir, `later-${round}`));
        },
      };
      await using reading = await volume.readUpper("s1-a", still);
      assert.deepEqual(calls, ["hold", "let go"]);
      for (let file = 0; file < 50; file += 1) {
        assert.equal(readFileSync(join(reading.dir, `file-${file}`), "utf8"), then);
      }
      assert.equal(existsSync(join(reading.dir, `later-${round}`)), false);
    }
  });

  test("writers are let go once when there is nothing to copy any more, and not when they were not held", async () => {
    volume.createUpper("s1-a", undefined);
    let held = 0;
    const letGo = () => {
      held -= 1;
    };
    const hold = async () => {
      held += 1;
      await volume.removeUpper("s1-a");
    };
    await assert.rejects(volume.readUpper("s1-a", { hold, letGo }), { kind: "NotFound" });
    assert.equal(held, 0);
    volume.createUpper("s1-a", undefined);
    const refuse = () => Promise.reject(new Error("not now"));
    await assert.rejects(volume.readUpper("s1-a", { hold: refuse, letGo }), /not now/);
    assert.equal(held, 0);
    assert.deepEqual(readdirSync(join(options.runDir, "volume", ".copies")), []);
  });

  test("an upper that an earlier release made, with ids of the host, is refused by name; an unknown one is not found", async () => {
    const { upperDir } = volume.createUpper("s1-old", undefined);
    chownSync(upperDir, 0x0800_0000, 0x0800_0000);
    await assert.rejects(volume.readUpper("s1-old"), {
      kind: "FailedPrecondition",
      message: /s1-old.*earlier release/,
    });
    await assert.rejects(volume.readUpper("s1-none"), { kind: "NotFound" });
    volume.createUpper("s1-a", undefined);
    volume.createUpper("s1-b", undefined);
    await assert.rejects(copyOf("s1-a", "s1-b"), { kind: "AlreadyExists" });
    assert.deepEqual([...volume.list()].sort(), ["s1-a", "s1-b", "s1-old"]);
    assert.deepEqual(readdirSync(join(options.runDir, "volume", ".copies")), []);
  });

  test("a removed upper whose data a copy shares holds up no other's quota group", async () => {
    const { upperDir } = volume.createUpper("s1-first", undefined);
    writeFileSync(join(upperDir, "data"), randomBytes(MIB));
    await copyOf("s1-first", "s1-copy");
    await volume.removeUpper("s1-first");
    for (let n = 0; n < 20; n += 1) volume.createUpper(`s1-${n}`, undefined);
    for (let n = 0; n < 20; n += 1) await volume.removeUpper(`s1-${n}`);
    assert.equal(readFileSync(join(options.runDir, "volume", "s1-copy", "upper", "data")).length, MIB);
  });
});

/** Quotas as kernels before 6.7 have them: whoever comes first says which. */
test("with full quotas a copy counts as what it wrote itself, and is limited by that", async () => {
  const [image, path] = [join(root, "image"), join(options.runDir, "volume")];
  mkdirSync(path, { recursive: true });
  writeFileSync(image, "");
  truncateSync(image, 512 * MIB);
  execFileSync("mkfs.btrfs", ["-q", image]);
  execFileSync("mount", ["-o", "loop", image, path]);
  execFileSync("btrfs", ["quota", "enable", path]);
  volume = await openVolume(options);
  const { upperDir } = volume.createUpper("s1-a", 48 * MIB);
  writeFileSync(join(upperDir, "big"), randomBytes(32 * MIB));
  execFileSync("sync", ["-f", upperDir]);
  assert.ok((volume.usage("s1-a") ?? 0) >= 32 * MIB);
  await copyOf("s1-a", "s1-b", 48 * MIB);
  await copyOf("s1-b", "s1-c", 48 * MIB);
  for (const id of ["s1-b", "s1-c"]) assert.ok((volume.usage(id) ?? MIB) < MIB, `${id}: ${volume.usage(id)}`);
  const copy = volume.openUpper("s1-c").upperDir;
  writeFileSync(join(copy, "own"), randomBytes(8 * MIB));
  execFileSync("sync", ["-f", copy]);
  const own = volume.usage("s1-c") ?? 0;
  assert.ok(own >= 8 * MIB && own < 12 * MIB, `${own}`);
  const filled = fill(copy, 64 * 1024);
  assert.ok(filled > 32 * MIB && filled <= 40 * MIB, `${filled}`);
  await copyOf("s1-c", "s1-d");
  assert.ok(fill(volume.openUpper("s1-d").upperDir, MIB) > 64 * MIB, "one without a limit has none of the other's");
});
