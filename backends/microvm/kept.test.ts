import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { evict, placeWhole } from "./kept.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-kept-"));
after(() => rmSync(root, { recursive: true }));

function made(dir: string, names: readonly string[]): void {
  for (const [at, name] of names.entries()) {
    mkdirSync(join(dir, name), { recursive: true });
    writeFileSync(join(dir, name, "memory"), name);
    utimesSync(join(dir, name), 1_000 + at, 1_000 + at);
  }
}

test("evict keeps those that were used last, within the bound, and what is being made", () => {
  const dir = join(root, "bounded");
  made(dir, ["used-long-ago", ".new-one", "second", "third", "used-last"]);
  evict(dir, { most: 5, but: ".new-" });
  assert.equal(readdirSync(dir).length, 5);
  evict(dir, { most: 2, but: ".new-" });
  assert.deepEqual(readdirSync(dir).sort(), [".new-one", "third", "used-last"]);
  utimesSync(join(dir, "third"), 9_000, 9_000);
  evict(dir, { most: 1, but: ".new-" });
  assert.deepEqual(readdirSync(dir).sort(), [".new-one", "third"]);
});

test("placeWhole gives a name once: who comes second leaves what is there", () => {
  const dir = join(root, "placed");
  made(dir, ["first", "second"]);
  placeWhole(join(dir, "first"), join(dir, "whole"));
  placeWhole(join(dir, "second"), join(dir, "whole"));
  assert.deepEqual(readdirSync(dir).sort(), ["second", "whole"]);
  assert.ok(existsSync(join(dir, "whole", "memory")));
});
