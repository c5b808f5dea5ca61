import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..");

test("tsc finds no type error", () => assert.equal(run("tsc", "--noEmit"), ""));

test("biome finds nothing to format, sort or warn about", () => {
  assert.equal(run("biome", "check", "--error-on-warnings", "--colors=off", "."), "");
});

/** What the tool says when it refuses the tree; nothing when it takes it. */
function run(tool: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(join(root, "node_modules", ".bin", tool), args, {
    cwd: root,
    encoding: "utf8",
  });
  return status === 0 ? "" : `${stdout}${stderr}`;
}
