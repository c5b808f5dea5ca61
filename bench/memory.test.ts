import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFields, privateKiB, readMemory, residentKiB } from "./memory.ts";

test("parseFields takes sizes and nothing else", () => {
  const text = "0400-0500 ---p 00000000 00:00 0 [rollup]\nRss:    12 kB\nVmFlags: rd\nPrivate_Dirty:  3 kB\n";
  assert.deepEqual(
    [...parseFields(text)],
    [
      ["Rss", 12],
      ["Private_Dirty", 3],
    ],
  );
});

test("readMemory sees what this machine has and what its kernel keeps", () => {
  const { availableKiB, kernelKiB } = readMemory();
  assert.ok(availableKiB > 10_000);
  for (const [kind, size] of Object.entries(kernelKiB)) assert.ok(size > 0, kind);
});

test("private memory is part of resident memory; a process that is gone has none", () => {
  assert.ok(privateKiB(process.pid) > 1_000);
  assert.ok(privateKiB(process.pid) <= residentKiB(process.pid) * 1.1);
  assert.deepEqual([privateKiB(2 ** 30), residentKiB(2 ** 30)], [0, 0]);
});
