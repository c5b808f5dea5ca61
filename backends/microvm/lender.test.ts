import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { lendingFact, provenLender } from "./lender.ts";

const LENDER = join(import.meta.dirname, "../../.build/dsec-lend.so");

test("where memory cannot be lent, machines keep it: the node and its doctor say why", async () => {
  const said: string[] = [];
  const log = (line: string) => said.push(line);
  assert.equal(await provenLender(LENDER, log), LENDER);
  assert.deepEqual(said, []);
  assert.equal((await lendingFact(LENDER)).state, "works");

  assert.equal(await provenLender(import.meta.filename, log), undefined);
  assert.match(said.join("\n"), /when a machine ends, not before: QEMU does not take it/);
  const fact = await lendingFact(import.meta.filename);
  assert.equal(fact.state, "partial");
  assert.match(fact.how, /libraries/);
});
