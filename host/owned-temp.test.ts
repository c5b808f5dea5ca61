import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { makeOwnedTemp, sweepOwnedTemps } from "./owned-temp.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-owned-"));
after(() => rmSync(root, { recursive: true }));

test("a directory goes with its disposal, and a sweep leaves it alone until then", async () => {
  const own = makeOwnedTemp(root, "own-");
  writeFileSync(join(own.path, "file"), "text");
  await sweepOwnedTemps(root, "own-");
  assert.deepEqual(readdirSync(own.path), ["file"]);
  await own[Symbol.asyncDispose]();
  assert.equal(existsSync(own.path), false);
});

test("a sweep removes what a dead process left, and nothing of another name, kind or user", async () => {
  mkdirSync(join(root, "own-dead/deep"), { recursive: true });
  mkdirSync(join(root, "other-dead"));
  writeFileSync(join(root, "own-file"), "");
  symlinkSync("other-dead", join(root, "own-link"));
  mkdirSync(join(root, "own-stranger"));
  chownSync(join(root, "own-stranger"), 12_345, 12_345);
  await sweepOwnedTemps(root, "own-");
  assert.deepEqual(readdirSync(root).toSorted(), ["other-dead", "own-file", "own-link", "own-stranger"]);
});

test("a sweep leaves what somebody still writes to the next one", async () => {
  const dir = join(root, "own-written");
  mkdirSync(dir);
  // Not `:` to make the file: where that fails, a shell ends.
  const writer = spawn("sh", ["-c", `while :; do mkdir -p ${dir}/a/b && true > ${dir}/a/b/c; done`], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  writer.stdout.resume();
  const closed = once(writer, "close");
  await sweepOwnedTemps(root, "own-");
  writer.kill("SIGKILL");
  // Its children hold the pipe: all of them have ended then.
  await closed;
  await sweepOwnedTemps(root, "own-");
  assert.equal(existsSync(dir), false);
});
