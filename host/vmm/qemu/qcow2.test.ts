import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { makeQcow2 } from "./qcow2.ts";

const MIB = 1024 * 1024;

test("an empty disk of any size is one to QEMU's own tools, and names no other file", () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-qcow2-"));
  try {
    for (const sizeBytes of [512, MIB, 512 * MIB, 512 * MIB + 512, 2 ** 36, 2 ** 42]) {
      const path = join(dir, `disk-${sizeBytes}`);
      makeQcow2(path, sizeBytes);
      execFileSync("qemu-img", ["check", "-q", path]);
      const text = execFileSync("qemu-img", ["info", "--output=json", path], { encoding: "utf8" });
      const info = JSON.parse(text) as Readonly<Record<string, unknown>>;
      assert.deepEqual([info.format, info["virtual-size"]], ["qcow2", sizeBytes]);
      assert.equal(info["backing-filename"], undefined);
      assert.ok(Number(info["actual-size"]) < MIB, "it takes what its tables take");
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});
