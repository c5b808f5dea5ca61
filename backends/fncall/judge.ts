import type { CellResult } from "#core/cells.ts";
import {
  type FunctionCall,
  type FunctionRun,
  type FunctionTest,
  type FunctionTestResult,
  type FunctionVerdict,
  TESTS_OUTPUT_LIMIT_BYTES,
} from "#core/functions.ts";
import { accepts } from "./checkers.ts";
import { messageOf, runOf, statusOf } from "./outcome.ts";
import { TESTS_AT_ONCE } from "./room.ts";

/** What judging needs of whoever runs programs. */
export interface JudgeParts {
  /** Runs the program that is judged. */
  run(stdin: Uint8Array): Promise<CellResult>;
  /** Runs a checker; resolves with its exit status, `undefined` when it has none. */
  check(
    checker: Extract<FunctionTest["checker"], { type: "program" }>,
    test: FunctionTest,
    output: Uint8Array,
  ): Promise<number | undefined>;
}

/**
 * The verdict on each test, in order. With `stopEarly` those behind the first that was not accepted are skipped. Verdicts are about all that was
 * printed; of that each result keeps its share of `TESTS_OUTPUT_LIMIT_BYTES`.
 */
export async function judge(
  call: Pick<FunctionCall, "tests" | "stopEarly">,
  parts: JudgeParts,
): Promise<readonly FunctionTestResult[]> {
  const results: (FunctionTestResult | undefined)[] = call.tests.map(() => undefined);
  const queue = call.tests.entries();
  const shareBytes = Math.floor(TESTS_OUTPUT_LIMIT_BYTES / 2 / call.tests.length);
  let failedAt = Number.POSITIVE_INFINITY;
  const work = async () => {
    for (const [index, test] of queue) {
      if (call.stopEarly && index > failedAt) return;
      const result = await judgeOne(test, parts);
      results[index] = { ...result, run: result.run && cut(result.run, shareBytes) };
      if (result.verdict !== "accepted") failedAt = Math.min(failedAt, index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(TESTS_AT_ONCE, call.tests.length) }, work));
  // One that was begun before an earlier one failed counts as not run: what is told must not depend on who was faster.
  return results.map((result, index) => (call.stopEarly && index > failedAt ? SKIPPED : (result ?? SKIPPED)));
}

const SKIPPED: FunctionTestResult = { verdict: "skipped", message: undefined, run: undefined };

/** A copy: a view of what is left would keep the whole. */
function cut(run: FunctionRun, mostBytes: number): FunctionRun {
  const { stdout, stderr } = run;
  if (Math.max(stdout.length, stderr.length) <= mostBytes) return run;
  const shared = (bytes: Uint8Array) => new Uint8Array(bytes.subarray(0, mostBytes));
  return { ...run, stdout: shared(stdout), stderr: shared(stderr), outputCut: true };
}

async function judgeOne(test: FunctionTest, parts: JudgeParts): Promise<FunctionTestResult> {
  const result = await parts.run(test.stdin);
  const status = statusOf(result);
  const run = runOf(result);
  if (status !== "ok") return { verdict: status, message: messageOf(result), run };
  const { verdict, message } = await compare(test, result.stdout, parts);
  return { verdict, message, run };
}

async function compare(
  test: FunctionTest,
  output: Uint8Array,
  parts: JudgeParts,
): Promise<{ readonly verdict: FunctionVerdict; readonly message: string | undefined }> {
  const { checker, expected } = test;
  if (checker.type === "program") {
    const code = await parts.check(checker, test, output);
    if (code === 0) return { verdict: "accepted", message: undefined };
    if (code === 1) return { verdict: "wrong-answer", message: undefined };
    return {
      verdict: "system-error",
      message: `the checker ended with ${code ?? "no exit status"}, which is neither 0 nor 1`,
    };
  }
  const accepted = expected === undefined || accepts(checker, expected, output);
  return { verdict: accepted ? "accepted" : "wrong-answer", message: undefined };
}
