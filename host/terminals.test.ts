import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { provideTerminals, TERMINALS_EACH } from "./terminals.ts";

const folder = mkdtempSync(join(tmpdir(), "dsec-pty-"));
after(() => rmSync(folder, { recursive: true }));

function machine(max: number, reserve: number): () => number {
  writeFileSync(join(folder, "max"), `${max}\n`);
  writeFileSync(join(folder, "reserve"), `${reserve}\n`);
  return () => Number(readFileSync(join(folder, "max"), "utf8"));
}

test("the limit is raised to what the sandboxes may take beside the machine's own", () => {
  const max = machine(4096, 1024);
  assert.match(provideTerminals(100, folder) ?? "", /^kernel.pty.max is 7424 now, not 4096/);
  assert.equal(max(), 1024 + 100 * TERMINALS_EACH);
  assert.equal(provideTerminals(100, folder), undefined);
  assert.equal(provideTerminals(10, folder), undefined);
  assert.equal(max(), 7424);
});

test("the limit never goes beyond the kernel's", () => {
  const max = machine(4096, 1024);
  provideTerminals(1_000_000, folder);
  assert.equal(max(), 2 ** 20);
});

test("where it cannot be raised that is said", () => {
  assert.match(provideTerminals(1, join(folder, "none")) ?? "", /may take each other's terminals: .*ENOENT/);
});

test("each sandbox has as many as its file system of terminals allows", () => {
  const source = readFileSync(join(import.meta.dirname, "cradle/root.c"), "utf8");
  assert.ok(source.includes(`,max=${TERMINALS_EACH}"`));
});
