import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { madeOnce } from "./made-once.ts";

test("a file is made once, and again when it was damaged or its maker failed", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "dsec-once-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "new/file");
  let times = 0;
  const make = async (target: string) => {
    times += 1;
    writeFileSync(target, "half");
    await setImmediate();
    if (times === 1) throw new Error("no network");
    writeFileSync(target, `whole ${times}`);
  };
  await assert.rejects(madeOnce(path, make), /no network/);
  assert.deepEqual(await Promise.all([madeOnce(path, make), madeOnce(path, make)]), [path, path]);
  assert.equal(await madeOnce(path, make), path);
  assert.equal(readFileSync(path, "utf8"), "whole 2");
  writeFileSync(path, "whole 9");
  await madeOnce(path, make);
  assert.equal(readFileSync(path, "utf8"), "whole 3");
});
