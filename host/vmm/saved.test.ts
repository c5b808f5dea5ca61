import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isSaved, recordSaved } from "./saved.ts";

const NOBODY = 65_534;

test("what cannot be made safe on the disk is not said to be saved: its machine goes on", () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-saved-"));
  const user = process.geteuid?.() ?? NOBODY;
  const record = () => recordSaved(dir, Buffer.from("devices"), { identity: "machine" });
  try {
    // Files can be made in it, and it cannot be opened to be flushed.
    if (user === 0) chownSync(dir, NOBODY, NOBODY);
    chmodSync(dir, 0o300);
    if (user === 0) process.seteuid?.(NOBODY);
    assert.throws(record, { code: "EACCES" });
    assert.equal(isSaved(dir), false);
    if (user === 0) process.seteuid?.(0);
    chmodSync(dir, 0o700);
    record();
    assert.equal(isSaved(dir), true);
  } finally {
    if (user === 0) process.seteuid?.(0);
    rmSync(dir, { recursive: true });
  }
});
