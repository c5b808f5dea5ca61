import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";

const LENDER = join(import.meta.dirname, "../../.build/dsec-lend.so");
const PAGE = 4096;
const CONTENT = Buffer.alloc(4 * PAGE, 7);
/** The first descriptor that a program is given here. */
const GIVEN = 3;

describe("a lent file", () => {
  let dir: string;
  let file: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), "dsec-lend-"));
    file = join(dir, "memory");
    writeFileSync(file, CONTENT);
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  /** fallocate(1), as QEMU is run: what it opens, and how the descriptor was opened that it is given. */
  function fallocate(
    words: readonly string[],
    { path = `/proc/dsec-lent-${GIVEN}`, flags = "r", isLoaded = true } = {},
  ) {
    const fd = openSync(file, flags);
    try {
      const env = isLoaded ? { LD_PRELOAD: LENDER } : {};
      const { status, stderr } = spawnSync("fallocate", [...words, path], {
        ...{ env: { ...process.env, ...env }, encoding: "utf8" },
        stdio: ["ignore", "pipe", "pipe", fd],
      });
      return { status, stderr };
    } finally {
      closeSync(fd);
    }
  }
  const PUNCH = ["--punch-hole", "--keep-size", "--offset", "0", "--length", String(PAGE)];

  test("a hole in it is no error, and no hole", () => {
    const { blocks } = statSync(file);
    assert.deepEqual(fallocate(PUNCH), { status: 0, stderr: "" });
    assert.ok(readFileSync(file).equals(CONTENT));
    assert.equal(statSync(file).blocks, blocks);
  });

  test("whatever else would change it fails", () => {
    for (const change of ["--zero-range", "--collapse-range", "--length=1048576"]) {
      const words = change.startsWith("--length") ? [change] : [change, "--length", String(PAGE)];
      assert.match(fallocate(words).stderr, /Bad file descriptor/, change);
    }
    assert.ok(readFileSync(file).equals(CONTENT));
  });

  test("other files are as they are without it: their holes are made, and new ones too", () => {
    assert.equal(fallocate(PUNCH, { path: file }).status, 0);
    assert.ok(readFileSync(file).subarray(0, PAGE).equals(Buffer.alloc(PAGE)));
    assert.ok(readFileSync(file).subarray(PAGE).equals(CONTENT.subarray(PAGE)));
    const made = join(dir, "made");
    assert.equal(fallocate(["--length", "100"], { path: made }).status, 0);
    assert.deepEqual([statSync(made).size, statSync(made).mode & 0o777], [100, 0o644]);
  });

  test("what may be written is not lent, nor what is no descriptor", () => {
    assert.match(fallocate(PUNCH, { flags: "r+" }).stderr, /Permission denied/);
    for (const name of ["99", "", "3x", "-1", "4294967299", " "]) {
      assert.match(fallocate(PUNCH, { path: `/proc/dsec-lent-${name}` }).stderr, /Permission denied/, name);
    }
    assert.ok(readFileSync(file).equals(CONTENT));
  });

  test("without the library the name leads nowhere", () => {
    assert.match(fallocate(PUNCH, { isLoaded: false }).stderr, /No such file/);
  });
});
