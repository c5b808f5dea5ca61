import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { MS, mount, unmount } from "#host/sys/mount.ts";
import { copyFileSparse } from "./memory.ts";

test("a copy for which there is too little room fails, also when its last piece has a part on the disk", async () => {
  const root = mkdtempSync(join(tmpdir(), "dsec-memory-"));
  const target = join(root, "small");
  mkdirSync(target);
  mount("dsec-test", target, "tmpfs", MS.NOSUID | MS.NODEV, "size=64k,mode=700");
  try {
    writeFileSync(join(root, "from"), Buffer.alloc(100_000, 1));
    await assert.rejects(copyFileSparse(join(root, "from"), join(target, "to")), { code: "ENOSPC" });
  } finally {
    unmount(target);
    rmSync(root, { recursive: true });
  }
});
