import { type FunctionCall, OUTPUT_FILES_LIMIT_BYTES, TESTS_OUTPUT_LIMIT_BYTES } from "#core/functions.ts";

/** A message of a compiler that is longer helps nobody. */
export const COMPILE_OUTPUT_BYTES = 64 * 1024;

/** Tests of one call that are under way at once. */
export const TESTS_AT_ONCE = 4;

/** What a call may have in memory at most until its result is passed on: what it returns, and what its tests print while they run. */
export function mostBytesOf({
  code,
  limits,
  outputs,
  runtime,
  tests,
}: Pick<FunctionCall, "code" | "limits" | "outputs" | "runtime" | "tests">): number {
  const compileBytes = code === undefined || runtime.compile === undefined ? 0 : 2 * COMPILE_OUTPUT_BYTES;
  const runBytes = 2 * limits.outputBytes;
  if (tests.length === 0) return compileBytes + runBytes + (outputs.length === 0 ? 0 : OUTPUT_FILES_LIMIT_BYTES);
  const returnedBytes = Math.min(TESTS_OUTPUT_LIMIT_BYTES, tests.length * runBytes);
  return compileBytes + returnedBytes + Math.min(TESTS_AT_ONCE, tests.length) * runBytes;
}
