import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
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

test("a sweep removes what a dead process left, and nothing of another name", async () => {
  mkdirSync(join(root, "own-dead/deep"), { recursive: true });
  mkdirSync(join(root, "other-dead"));
  await sweepOwnedTemps(root, "own-");
  assert.deepEqual(readdirSync(root), ["other-dead"]);
});
