import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { testFiles } from "./test.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

describe("the files of a test run", () => {
  test("are all but the slow ones without words, black-box suites last", () => {
    const files = testFiles(ROOT, []);
    assert.ok(files.includes("bin/test.test.ts"));
    assert.ok(files.every((path) => !path.startsWith("tests/host-vm/") && !path.includes("node_modules")));
    const first = files.findIndex((path) => path.startsWith("tests/"));
    assert.ok(first > 0 && files.slice(first).every((path) => path.startsWith("tests/")));
  });

  test("are those whose path has a word; slow ones only when their folder is named", () => {
    assert.deepEqual(testFiles(ROOT, ["bin/test.test"]), ["bin/test.test.ts"]);
    assert.ok(testFiles(ROOT, ["host"]).every((path) => !path.startsWith("tests/host-vm/")));
    assert.deepEqual(testFiles(ROOT, ["host-vm"]), [
      "tests/host-vm/debian-12.test.ts",
      "tests/host-vm/debian-13.test.ts",
    ]);
    assert.ok(testFiles(ROOT, ["contract"]).every((path) => !/^tests\/contract\/(microvm|fullvm)\//.test(path)));
    assert.ok(testFiles(ROOT, ["contract/microvm"]).includes("tests/contract/microvm/commands.test.ts"));
    assert.ok(testFiles(ROOT, ["fullvm"]).includes("tests/contract/fullvm/commands.test.ts"));
    assert.throws(() => testFiles(ROOT, ["no such word"]), { kind: "InvalidArgument" });
  });
});

describe("a run of tests", () => {
  test("passes when all pass", async () => {
    const { code, stdout } = await runIn({ good: PASSES });
    assert.equal(code, 0);
    assert.ok(!stdout.includes("again, alone"));
  });

  test("runs what failed again, names what passes then, and adds up both runs", async () => {
    const { code, stdout } = await runIn({ good: PASSES, moody: PASSES + FAILS_ONCE });
    assert.equal(code, 0, stdout);
    assert.match(stdout, /\nunsteady: moody\.test\.ts failed beside others and passed alone\n/);
    assert.match(stdout, /\nboth runs together:\nℹ tests 3\nℹ suites 0\nℹ pass 3\nℹ fail 0\n/);
  });

  test("fails when something fails twice, be it a test or the end of its file", async () => {
    const { code, stdout } = await runIn({ bad: FAILS, crash: "process.exit(3);", moody: FAILS_ONCE });
    assert.equal(code, 1);
    assert.match(stdout, /\nboth runs together:\nℹ tests 3\nℹ suites 0\nℹ pass 1\nℹ fail 2\n/);
  });

  test("runs the file that was run again, not the one that says what its tests are", async () => {
    const suite = `export function suite() { ${FAILS} }`;
    const { code, stdout } = await runIn({ shared: `import { suite } from "./suite.ts"; suite();` }, [], { suite });
    assert.equal(code, 1);
    assert.match(stdout, /\nagain, alone: shared\.test\.ts\n/);
    assert.match(stdout, /\nboth runs together:\nℹ tests 1\nℹ suites 0\nℹ pass 0\nℹ fail 1\n/);
  });

  test("fails at once when much has failed, or when it was asked for some files only", async () => {
    const four = { a: FAILS_ONCE, b: FAILS_ONCE, c: FAILS_ONCE, d: FAILS_ONCE };
    for (const [files, ...words] of [[four], [{ moody: FAILS_ONCE }, "moody"]] as const) {
      const { code, stdout } = await runIn(files, words);
      assert.equal(code, 1);
      assert.ok(!stdout.includes("again, alone"));
    }
  });
});

const PASSES = 'test("passes", () => {});\n';
const FAILS = 'test("fails", () => assert.fail());\n';
const FAILS_ONCE = `
  test("fails the first time", () => {
    const mark = import.meta.filename + ".mark";
    const first = !existsSync(mark);
    writeFileSync(mark, "");
    assert.ok(!first);
  });
`;
const IMPORTS = `
  import assert from "node:assert/strict";
  import { existsSync, writeFileSync } from "node:fs";
  import { test } from "node:test";
`;

/** Runs test files of this text, beside modules that they import, in a tree of their own. */
async function runIn(
  files: Readonly<Record<string, string>>,
  words: readonly string[] = [],
  modules: Readonly<Record<string, string>> = {},
) {
  const tree = mkdtempSync(join(tmpdir(), "dsec-tests-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(tree, `${name}.test.ts`), IMPORTS + text);
    for (const [name, text] of Object.entries(modules)) writeFileSync(join(tree, `${name}.ts`), IMPORTS + text);
    const call = `runTests(${JSON.stringify(words)}, ${JSON.stringify(`${tree}/`)})`;
    const script = `import { runTests } from "${ROOT}bin/test.ts"; process.exitCode = await ${call};`;
    writeFileSync(join(tree, "main.ts"), script);
    // Inside a test, node would not run others.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    return await new Promise<{ code: unknown; stdout: string }>((resolve) => {
      execFile(process.execPath, [join(tree, "main.ts")], { env }, (error, stdout) => {
        resolve({ code: error === null ? 0 : error.code, stdout });
      });
    });
  } finally {
    rmSync(tree, { recursive: true });
  }
}
