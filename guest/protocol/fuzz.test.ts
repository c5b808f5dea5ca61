import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");

test("the agent's parsers stand every input the fuzzer has found, and 100,000 new ones", (t) => {
  if (spawnSync("clang", ["--version"]).status !== 0)
    return t.skip("no clang on this machine to build the fuzzer with");
  const sources = join(ROOT, "guest/agent");
  const built = spawnSync("flock", [sources, "make", "-s", "-C", sources, "fuzz"], { encoding: "utf8" });
  assert.equal(built.status, 0, built.stderr);
  const found = mkdtempSync(join(tmpdir(), "dsec-fuzz-"));
  try {
    const args = ["-runs=100000", "-max_len=4096", found, join(ROOT, "guest/agent/corpus")];
    const run = spawnSync(join(ROOT, ".build/fuzz-agent"), args, { cwd: found, encoding: "utf8" });
    assert.equal(run.status, 0, run.stderr.slice(-3000));
  } finally {
    rmSync(found, { recursive: true, force: true });
  }
});
