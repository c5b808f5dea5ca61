import assert from "node:assert/strict";
import { test } from "node:test";
import type { CellResult } from "#core/cells.ts";
import { type FunctionTest, TESTS_OUTPUT_LIMIT_BYTES } from "#core/functions.ts";
import { judge } from "./judge.ts";

const ENDED: CellResult = {
  ...{ verdict: "ended", clean: true, code: 0, signal: undefined, errno: undefined, wallMs: 1, cpuMs: 1, peakBytes: 1 },
  ...{ stdout: new Uint8Array(), stderr: new Uint8Array(), files: [], missing: [], tooLarge: [] },
};

test("tests together keep so much output, whatever each may print, and verdicts are about all of it", async () => {
  const share = TESTS_OUTPUT_LIMIT_BYTES / 4;
  const long = Buffer.alloc(share + 1, "a");
  const tests: FunctionTest[] = [long, long.subarray(1)].map((expected) => ({
    ...{ stdin: expected, expected, checker: { type: "exact" } },
  }));
  const results = await judge(
    { tests, stopEarly: false },
    { run: async (stdout) => ({ ...ENDED, stdout }), check: async () => undefined },
  );
  assert.deepEqual(
    results.map(({ verdict, run }) => [verdict, run?.stdout.length, run?.outputCut]),
    [
      ["accepted", share, true],
      ["accepted", share, false],
    ],
  );
  // What is kept is all that is held in memory.
  assert.equal(results[0]?.run?.stdout.buffer.byteLength, share);
});
