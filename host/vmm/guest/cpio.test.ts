import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { cpioArchive } from "./cpio.ts";

test("an archive holds folders, devices and files with their modes and bytes, as another reader has it", () => {
  const archive = cpioArchive([
    { path: "dev", type: "directory" },
    { path: "dev/console", type: "device", major: 5, minor: 1 },
    { path: "init", type: "file", mode: 0o711, bytes: Buffer.from("three") },
    { path: "empty", type: "file", mode: 0o600, bytes: Buffer.alloc(0) },
  ]);
  const list = execFileSync("busybox", ["cpio", "-tv"], { input: archive, encoding: "utf8", stdio: "pipe" });
  const lines = list.trim().split("\n");
  assert.deepEqual(
    lines.map((line) => [line.split(/\s+/)[0], line.split(/\s+/).at(-1)]),
    [
      ["drwxr-xr-x", "dev"],
      ["crw-------", "dev/console"],
      ["-rwx--x--x", "init"],
      ["-rw-------", "empty"],
    ],
  );
  const bytes = execFileSync("busybox", ["cpio", "-i", "--to-stdout", "init"], { input: archive, stdio: "pipe" });
  assert.equal(bytes.toString(), "three");
});
