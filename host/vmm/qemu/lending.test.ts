import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { lendingObstacle } from "./lending.ts";

const LENDER = join(import.meta.dirname, "../../../.build/dsec-lend.so");

test("this host's QEMU takes memory that is lent, and none where the library is another or not there", async () => {
  assert.equal(await lendingObstacle(LENDER), undefined);
  assert.match((await lendingObstacle(import.meta.filename)) ?? "", /QEMU does not take it: .*No such file/s);
  assert.match((await lendingObstacle("/nowhere/dsec-lend.so")) ?? "", /^there is no/);
});
