import assert from "node:assert/strict";
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
    assert.ok(testFiles(ROOT, ["contract"]).every((path) => !path.startsWith("tests/contract/microvm/")));
    assert.ok(testFiles(ROOT, ["contract/microvm"]).includes("tests/contract/microvm/commands.test.ts"));
    assert.throws(() => testFiles(ROOT, ["no such word"]), { kind: "InvalidArgument" });
  });
});
