import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { judgeMessage, judgeRange } from "./check-commits.ts";
import { checkDependencies } from "./check-dependencies.ts";
import { checkSecrets } from "./check-secrets.ts";
import { treeOf } from "./tree.ts";

describe("checkDependencies", () => {
  const page = "| Package | Version | Why |\n|---|---|---|\n| `ws` | 8.0.0 | x |\n| `fast-check` | 4.0.0 | x |\n";
  const manifest = { dependencies: { ws: "8.0.0" }, devDependencies: { "fast-check": "4.0.0" } };
  const check = (more: Readonly<Record<string, string>>, changed: object = manifest) =>
    checkDependencies(
      treeOf({ "package.json": JSON.stringify(changed), "docs/contributing/dependencies.md": page, ...more }),
    ).map(({ path, message }) => `${path} ${message}`);

  test("takes what is declared and explained", () => {
    assert.deepEqual(check({ "a.ts": 'import "ws/lib"; import "node:fs";', "a.test.ts": 'import "fast-check";' }), []);
  });
  test("finds a package that is not declared", () => {
    assert.deepEqual(check({ "a.ts": 'import "@a/b/c";' }), ["a.ts @a/b is not declared"]);
  });
  test("finds a development package in what ships", () => {
    assert.deepEqual(check({ "a.ts": 'import "fast-check";' }), ["a.ts fast-check is not declared"]);
  });
  test("finds a range, another version and a missing explanation", () => {
    const problems = check({}, { dependencies: { ws: "^8.0.0", x: "1.0.0" } });
    assert.equal(problems.length, 3);
  });
});

describe("checkSecrets", () => {
  const count = (text: string) => checkSecrets(treeOf({ "a.md": text })).length;
  const refused = [
    `-----BEGIN RSA PRIVATE ${"KEY"}-----`,
    `AKIA${"A".repeat(16)}`,
    `dsec_${"a".repeat(43)}`,
    `/${"work"}/main`,
    `https://${"registry"}.example.org/`,
    `"resolved": "${"https"}://x"`,
    `192.168${".1"}.1`,
  ];
  for (const text of refused) test(`refuses ${text.slice(0, 30)}`, () => assert.equal(count(text), 1));
  const taken = [
    "dsec_token",
    "/root",
    "./work/x",
    "a/work/b",
    "127.0.0.1",
    "https://example.org/registry",
    "/home/user/x",
  ];
  for (const text of taken) test(`takes ${text}`, () => assert.equal(count(text), 0));
});

describe("judgeMessage", () => {
  test("takes an area, a summary and a reason", () => {
    assert.deepEqual(judgeMessage("edge: adopt live sandboxes\n\nThey were lost.\n"), []);
    assert.deepEqual(judgeMessage("host/sys, host/cgroup: bind calls\n\nWhy.\n"), []);
  });
  const refused = [
    "Fix things\n\nWhy.",
    "edge: Adopt\n\nWhy.",
    "edge: adopt.\n\nWhy.",
    "edge: adopt",
    `edge: ${"a".repeat(70)}\n\nWhy.`,
    "edge: adopt\nWhy.\nMore.",
  ];
  for (const message of refused)
    test(`refuses ${JSON.stringify(message)}`, () => assert.equal(judgeMessage(message).length, 1));
});

test("judgeRange counts the commits whose message is wrong and prints why", (t) => {
  const cwd = mkdtempSync(join(tmpdir(), "commits-"));
  t.after(() => rmSync(cwd, { recursive: true }));
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", ...args], { cwd });
  git("init", "-q");
  for (const message of ["a: good\n\nWhy.", "Bad"]) git("commit", "-q", "--allow-empty", "-m", message);
  const printed: string[] = [];
  assert.equal(
    judgeRange("HEAD", (line) => printed.push(line), cwd),
    1,
  );
  assert.equal(printed.length, 2);
});
