import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { VERSION } from "./version.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-installed-"));
after(() => rmSync(root, { recursive: true, force: true }));

interface Entry {
  readonly version: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
}

function check(wanted: Record<string, Entry>, present: Record<string, Entry>): string {
  mkdirSync(join(root, "node_modules"), { recursive: true });
  writeFileSync(join(root, "package-lock.json"), JSON.stringify({ packages: wanted }));
  writeFileSync(join(root, "node_modules/.package-lock.json"), JSON.stringify({ packages: present }));
  const script = new URL("./installed.ts", import.meta.url).pathname;
  return spawnSync(process.execPath, [script, root], { encoding: "utf8" }).stdout.trim();
}

describe("installed", () => {
  const a = { "node_modules/a": { version: "1.0.0", integrity: "x" } };

  test("is full when every package is there in its version", () => {
    assert.equal(check(a, a), "full");
  });

  test("is production when only packages for development are missing", () => {
    assert.equal(check({ ...a, "node_modules/d": { version: "1.0.0", dev: true } }, a), "production");
  });

  test("does not mind what is for other machines", () => {
    assert.equal(check({ ...a, "node_modules/o": { version: "1.0.0", optional: true, dev: true } }, a), "full");
  });

  test("is nothing when a package is missing, of another version or of other content", () => {
    assert.equal(check({ ...a, "node_modules/b": { version: "1.0.0" } }, a), "");
    assert.equal(check(a, { "node_modules/a": { version: "1.0.1", integrity: "x" } }), "");
    assert.equal(check(a, { "node_modules/a": { version: "1.0.0", integrity: "y" } }), "");
  });
});

test("the version that programs say is the version of the package", () => {
  for (const file of ["../package.json", "../client/sdk/package.json"]) {
    const { version } = JSON.parse(readFileSync(new URL(file, import.meta.url), "utf8")) as { version: string };
    assert.equal(VERSION, version);
  }
});
