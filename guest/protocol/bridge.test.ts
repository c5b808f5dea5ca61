import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { buildAgents } from "./testing.ts";

const PROGRAM = join(import.meta.dirname, "../../.build/agent-bridge");

test("a port that seems to be at its end behind the first words of a connection keeps it", () => {
  buildAgents();
  const dir = mkdtempSync(join(tmpdir(), "dsec-bridge-"));
  try {
    const said = execFileSync(PROGRAM, { cwd: dir, encoding: "utf8" });
    assert.deepEqual(said.trim().split("\n"), ["echo whole", "heard hello", "agent kept"]);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
