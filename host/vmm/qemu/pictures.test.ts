import assert from "node:assert/strict";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { readPixels, readPng } from "./pictures.ts";

const dir = mkdtempSync(join(tmpdir(), "dsec-pictures-"));
after(() => rmSync(dir, { recursive: true }));
const path = join(dir, "screen");

function written(...parts: (string | Buffer)[]): string {
  writeFileSync(path, Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part))));
  return path;
}

test("points are read as they are", () => {
  const rgb = Buffer.from([1, 2, 3, 10, 35, 10]);
  assert.deepEqual(readPixels(written("P6\n2 1\n255\n", rgb)), { width: 2, height: 1, rgb });
});

test("a monitor that a guest has taken over gets no picture taken that is none, and none without bounds", () => {
  for (const parts of [
    [""],
    ["P6\n"],
    ["P6\n2 1\n255\n", Buffer.alloc(5)],
    ["P6\n2 1\n255\n", Buffer.alloc(7)],
    ["P6\n2 1\n65535\n", Buffer.alloc(12)],
    ["P6\n-2 1\n255\n", Buffer.alloc(6)],
    ["P6\n99999 99999\n255\n"],
    ["P5\n2 1\n255\n", Buffer.alloc(6)],
  ]) {
    assert.throws(() => readPixels(written(...parts)), { kind: "Internal" }, String(parts[0]));
  }
  assert.throws(() => readPng(written("P6\n2 1\n255\n")), { kind: "Internal" });
  truncateSync(written("P6\n99999 99999\n255\n"), 40 * 2 ** 30);
  assert.throws(() => readPixels(path), { kind: "Internal" });
});
