import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { MNT, mount, unmount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { quotaGroups, withDirectory } from "./btrfs.ts";
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

for (const sizeMiB of [512, 0]) {
  describe(`a volume of ${sizeMiB} MiB`, () => {
    beforeEach(async () => {
      volume = await openVolume({ ...options, sizeMiB });
    });

    test("an upper is two empty directories owned by the sandbox", () => {
      const upper = volume.createUpper("s1-a", undefined);
      for (const dir of [upper.upperDir, upper.workDir]) {
        const stat = statSync(dir);
        assert.deepEqual([stat.uid, stat.gid, stat.mode & 0o7777], [0, 0, 0o755]);
        assert.deepEqual(readdirSync(dir), []);
      }
      assert.equal(statSync(upper.upperDir).dev, statSync(upper.workDir).dev);
      assert.deepEqual([...volume.list()], ["s1-a"]);
    });

    test("one that was made ahead gets its sandbox's id, and takes nobody's", () => {
      const ahead = volume.createUpper("ahead", undefined);
      const upper = volume.renameUpper("ahead", "s1-a", undefined);
      assert.deepEqual([existsSync(ahead.upperDir), existsSync(upper.upperDir)], [false, true]);
      assert.deepEqual([...volume.list()], ["s1-a"]);
      volume.createUpper("ahead", undefined);
      assert.throws(() => volume.renameUpper("ahead", "s1-a", undefined), { kind: "AlreadyExists" });
    });

    test("an id is taken until it is removed; removing is safe twice and for unknown ids", async () => {
      volume.createUpper("s1-a", undefined);
      assert.throws(() => volume.createUpper("s1-a", undefined), { kind: "AlreadyExists" });
      for (const id of ["s1-a", "s1-a", "s1-never"]) await volume.removeUpper(id);
      volume.createUpper("s1-a", undefined);
    });

    test("removing never follows a link out of the upper", async () => {
      const outside = join(root, "outside");
      mkdirSync(outside);
      writeFileSync(join(outside, "keep"), "");
      const { upperDir } = volume.createUpper("s1-a", undefined);
      for (const [name, target] of [
        ["dir", outside],
        ["file", join(outside, "keep")],
      ] as const) {
        symlinkSync(target, join(upperDir, name));
      }
      await volume.removeUpper("s1-a");
      assert.deepEqual(readdirSync(outside), ["keep"]);
    });

    test("an overlay works on it, whiteouts included", () => {
      const lower = join(root, "lower");
      const target = join(root, "merged");
      for (const dir of [lower, target]) mkdirSync(dir);
      writeFileSync(join(lower, "gone"), "");
      const { upperDir, workDir } = volume.createUpper("s1-a", undefined);
      mount("overlay", target, "overlay", 0, `lowerdir=${lower},upperdir=${upperDir},workdir=${workDir}`);
      try {
        rmSync(join(target, "gone"));
        writeFileSync(join(target, "new"), "x");
        assert.deepEqual(readdirSync(target), ["new"]);
      } finally {
        unmount(target, MNT.DETACH);
      }
      assert.equal(statSync(join(upperDir, "gone")).rdev, 0);
    });
  });
}

describe("limits", () => {
  beforeEach(async () => {
    volume = await openVolume(options);
    assert.equal(volume.supportsLimits, true, volume.reason);
  });

  test("a full upper gets EDQUOT alone, near its limit, and says how much it holds", () => {
    const full = volume.createUpper("s1-full", 16 * MIB);
    const other = volume.createUpper("s1-other", 16 * MIB);
    const written = fill(full.upperDir, 64 * 1024);
    assert.ok(written > 12 * MIB && written <= 16 * MIB, `wrote ${written}`);
    writeFileSync(join(other.upperDir, "f"), randomBytes(8 * MIB));
    const usage = volume.usage("s1-full") ?? 0;
    assert.ok(usage > 12 * MIB && usage <= 16 * MIB, `counted ${usage}`);
  });

  test("one that was made ahead gets its limit with its id", () => {
    volume.createUpper("ahead", undefined);
    const { upperDir } = volume.renameUpper("ahead", "s1-a", 8 * MIB);
    assert.ok(fill(upperDir, 64 * 1024) <= 8 * MIB);
  });

  test("a full upper can be emptied and written again", () => {
    const { upperDir } = volume.createUpper("s1-a", 16 * MIB);
    fill(upperDir, 1 * MIB);
    for (const name of readdirSync(upperDir)) rmSync(join(upperDir, name));
    assert.ok(fill(upperDir, 64 * 1024) > 8 * MIB);
  });

  test("the least limit is usable, and less is refused with that least", () => {
    const { upperDir } = volume.createUpper("s1-least", 4 * MIB);
    for (let n = 0; n < 100; n += 1) mkdirSync(join(upperDir, `d${n}`));
    const written = fill(upperDir, 16 * 1024);
    assert.ok(written > 1 * MIB, `wrote ${written}`);
    assert.throws(() => volume.createUpper("s1-less", 4 * MIB - 1), {
      kind: "InvalidArgument",
      hint: /4 MiB or more/,
    });
    assert.equal(volume.list().has("s1-less"), false);
  });

  test("an upper without a limit is bounded by the volume", () => {
    const { upperDir } = volume.createUpper("s1-big", undefined);
    assert.ok(fill(upperDir, 8 * MIB) > 200 * MIB);
  });

  test("2,000 uppers at once, each with a limit, come and go", async () => {
    for (let n = 0; n < 2000; n += 1) volume.createUpper(`s1-${n}`, 16 * MIB);
    for (let n = 0; n < 2000; n += 1) await volume.removeUpper(`s1-${n}`);
    assert.equal(volume.list().size, 0);
  });
});

describe("a volume outlives its node", () => {
  test("making its file system is tried again when a loop device of somebody else goes meanwhile", async () => {
    // As mkfs.btrfs fails then; the moment cannot be forced from outside.
    const failed = join(root, "failed");
    const { PATH } = process.env;
    const lines = [
      "#!/bin/sh",
      `[ -e ${failed} ] || { : >${failed}; echo 'ERROR: cannot check mount status of x: No such device or address' >&2; exit 1; }`,
      `PATH=${PATH}; exec mkfs.btrfs "$@"`,
    ];
    writeFileSync(join(root, "mkfs.btrfs"), lines.join("\n"), { mode: 0o755 });
    process.env.PATH = `${root}:${PATH}`;
    try {
      volume = await openVolume(options);
    } finally {
      process.env.PATH = PATH;
    }
    assert.ok(existsSync(failed));
    assert.deepEqual([...volume.list()], []);
  });

  test("one that is mounted is adopted with its uppers and their limits", async () => {
    const first = await openVolume(options);
    first.createUpper("s1-a", 16 * MIB);
    volume = await openVolume(options);
    assert.deepEqual([...volume.list()], ["s1-a"]);
    assert.ok(fill(join(options.runDir, "volume", "s1-a", "upper"), MIB) <= 16 * MIB);
  });

  test("closing leaves it mounted while uppers are in it", async () => {
    volume = await openVolume(options);
    volume.createUpper("s1-a", undefined);
    await volume[Symbol.asyncDispose]();
    assert.equal(mountAt(join(options.runDir, "volume"))?.fstype, "btrfs");
  });

  test("after a reboot the image is mounted again, larger when it was enlarged", async () => {
    const first = await openVolume(options);
    first.createUpper("s1-a", undefined);
    unmount(join(options.runDir, "volume"));
    volume = await openVolume({ ...options, sizeMiB: 768 });
    assert.deepEqual([...volume.list()], ["s1-a"]);
    assert.equal(statSync(join(options.dataDir, "volume.btrfs")).size, 768 * MIB);
    assert.ok(fill(join(options.runDir, "volume", "s1-a", "upper"), 8 * MIB) > 520 * MIB);
  });

  test("a file system that something else still holds is mounted from its own device, not a second one", async () => {
    const first = await openVolume(options);
    first.createUpper("s1-a", undefined);
    const path = join(options.runDir, "volume");
    const hold = join(root, "hold");
    mkdirSync(hold);
    mount(path, hold, "none", 4096);
    unmount(path);
    try {
      volume = await openVolume(options);
      assert.equal(mountAt(path)?.source, mountAt(hold)?.source);
    } finally {
      unmount(hold);
    }
  });

  test("quota groups that a killed node left are swept at the next start", async () => {
    const first = await openVolume(options);
    for (let n = 0; n < 20; n += 1) first.createUpper(`s1-${n}`, 16 * MIB);
    for (let n = 0; n < 20; n += 1) await first.removeUpper(`s1-${n}`);
    unmount(join(options.runDir, "volume"));
    volume = await openVolume(options);
    // What the kernel still cleans up may linger; nothing of it may stand in the way of new uppers.
    volume.createUpper("s1-new", 16 * MIB);
    const groups = withDirectory(join(options.runDir, "volume"), quotaGroups);
    assert.ok(groups.size >= 2 && groups.size <= 22);
  });

  test("an image whose making was interrupted is made anew", async () => {
    mkdirSync(options.dataDir);
    writeFileSync(join(options.dataDir, "volume.btrfs.new"), "half");
    volume = await openVolume(options);
    assert.equal(volume.kind, "btrfs");
    assert.equal(existsSync(join(options.dataDir, "volume.btrfs.new")), false);
  });

  test("a damaged image is a clear error and takes no loop device", async () => {
    mkdirSync(options.dataDir);
    writeFileSync(join(options.dataDir, "volume.btrfs"), randomBytes(MIB));
    await assert.rejects(openVolume(options), { kind: "Internal", message: /mounting the volume/ });
    const loops = readdirSync("/sys/block").filter((name) => name.startsWith("loop"));
    const backing = loops.map((name) => `/sys/block/${name}/loop/backing_file`).filter((file) => existsSync(file));
    assert.ok(backing.every((file) => !readFileSync(file, "utf8").startsWith(root)));
    volume = await openVolume({ ...options, sizeMiB: 0 });
  });
});

describe("a plain directory", () => {
  beforeEach(async () => {
    volume = await openVolume({ ...options, sizeMiB: 0 });
  });

  test("disk limits are refused by name", () => {
    assert.equal(volume.supportsLimits, false);
    assert.throws(() => volume.createUpper("s1-a", 64 * MIB), {
      kind: "FailedPrecondition",
      message: /disk limit/,
    });
    assert.equal(volume.list().size, 0);
    assert.equal(volume.usage("s1-a"), undefined);
  });

  test("too small an image is refused, not replaced by a directory", async () => {
    await assert.rejects(openVolume({ ...options, sizeMiB: 16 }), { kind: "InvalidArgument", hint: /256 MiB/ });
  });

  test("trees deeper than PATH_MAX, names that are no UTF-8 and closed directories are removed", async () => {
    const { upperDir } = volume.createUpper("s1-a", undefined);
    writeFileSync(Buffer.concat([Buffer.from(`${upperDir}/`), Buffer.from([0xff, 0xfe])]), "");
    mkdirSync(join(upperDir, "closed"));
    writeFileSync(join(upperDir, "closed", "file"), "");
    chmodSync(join(upperDir, "closed"), 0);
    digDown(upperDir, "d".repeat(200), 60);
    await volume.removeUpper("s1-a");
    assert.equal(volume.list().size, 0);
  });
});

/** Nests directories beyond what one path can name. */
function digDown(start: string, name: string, depth: number): void {
  const here = process.cwd();
  process.chdir(start);
  try {
    for (let level = 0; level < depth; level += 1) {
      mkdirSync(name);
      writeFileSync("file", "");
      process.chdir(name);
    }
  } finally {
    process.chdir(here);
  }
}
