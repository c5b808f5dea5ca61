import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const ELF_AARCH64 = 183;
const root = join(import.meta.dirname, "..");

test("tsc finds no type error", () => assert.equal(run("tsc", "--noEmit"), ""));

test("biome finds nothing to format, sort or warn about", () => {
  assert.equal(run("biome", "check", "--error-on-warnings", "--colors=off", "."), "");
});

for (const [folder, place] of [
  ["guest/agent", "OUT"],
  ["host/cradle", "BUILD"],
  ["host/view", "BUILD"],
] as const) {
  test(`${folder} builds for arm64 as well`, (t) => {
    const target = mkdtempSync(join(tmpdir(), "dsec-arm64-"));
    t.after(() => rmSync(target, { recursive: true }));
    const words = ["-s", "-C", join(root, folder), "CC=aarch64-linux-gnu-gcc", `${place}=${target}`, "all"];
    const { status, stderr } = spawnSync("make", words, { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    for (const name of readdirSync(target)) {
      // The machine's number in the head of an ELF file.
      assert.equal(readFileSync(join(target, name)).readUInt16LE(18), ELF_AARCH64, name);
    }
  });
}

/** What the tool says when it refuses the tree; nothing when it takes it. */
function run(tool: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(join(root, "node_modules", ".bin", tool), args, {
    cwd: root,
    encoding: "utf8",
  });
  return status === 0 ? "" : `${stdout}${stderr}`;
}
