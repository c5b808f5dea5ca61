import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";
import { SandboxError } from "#core/errors.ts";

/** Longer than the slowest file: a test that hangs must not hold the others' verdict for ever. */
const FILE_TIMEOUT_MS = 15 * 60_000;

/** Tests that take long, most because they boot machines that hosts have to emulate: run only when they are named, and given more time. */
const SLOW = [
  { paths: ["tests/host-vm/"], word: "host-vm" },
  { paths: ["tests/functions/verdicts/"], word: "functions" },
  {
    paths: ["tests/contract/microvm/", "backends/microvm/backend.test.ts", "backends/microvm/templates.test.ts"],
    word: "microvm",
  },
];
const SLOW_TIMEOUT_MS = 120 * 60_000;

/**
 * Runs the tests of the tree and ends with node's totals. Words pick the files whose path has one of them:
 * `./dsec test security`, `./dsec test core/rpc`.
 */
export async function runTests(words: readonly string[]): Promise<number> {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const files = testFiles(root, words);
  let failed = 0;
  const stream = run({
    files: files.map((file) => `${root}${file}`),
    cwd: root,
    // Files start processes and mounts of their own: more at once than cores only makes their time limits lie.
    concurrency: Math.max(1, Math.min(availableParallelism(), 4)),
    timeout: files.some((path) => slowWord(path) !== undefined) ? SLOW_TIMEOUT_MS : FILE_TIMEOUT_MS,
  });
  stream.on("test:summary", ({ file, counts }) => {
    // Without a file it sums up all of them; what was cancelled has not passed.
    if (file === undefined) failed = counts.tests - counts.passed - counts.skipped - counts.todo;
  });
  for await (const text of stream.compose(new spec())) process.stdout.write(text);
  for (const { paths, word } of words.length === 0 ? SLOW : []) {
    process.stdout.write(`left out: ${paths.join(" and ")}, run by ./dsec test ${word}\n`);
  }
  return failed === 0 ? 0 : 1;
}

/** The word that a slow test is asked for by; `undefined` for others. */
function slowWord(path: string): string | undefined {
  return SLOW.find(({ paths }) => paths.some((slow) => path.startsWith(slow)))?.word;
}

/** Test files below `root` by path, slow black-box suites last so that quick failures show first. */
export function testFiles(root: string, words: readonly string[]): readonly string[] {
  const exclude = (path: string) => /(^|\/)(node_modules|\.build|\.git)(\/|$)/.test(path);
  const isAskedFor = (slow: string | undefined) => slow === undefined || words.some((word) => word.includes(slow));
  const all = globSync("**/*.test.ts", { cwd: root, exclude }).filter(
    (path) => !exclude(path) && isAskedFor(slowWord(path)),
  );
  const picked = words.length === 0 ? all : all.filter((path) => words.some((word) => path.includes(word)));
  if (picked.length === 0) {
    throw new SandboxError("InvalidArgument", `no test file has ${words.join(" or ")} in its path`);
  }
  const order = (path: string) => `${path.startsWith("tests/") ? 1 : 0}${path}`;
  return picked.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}
