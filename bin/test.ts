import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { relative } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";
import { SandboxError } from "#core/errors.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Longer than the slowest file: a test that hangs must not hold the others' verdict for ever. */
const FILE_TIMEOUT_MS = 15 * 60_000;

/** Tests that take long, most because they boot machines that hosts have to emulate: run only when they are named, and given more time. */
const SLOW = [
  { paths: ["tests/fresh-host/"], word: "fresh-host" },
  { paths: ["tests/host-vm/"], word: "host-vm" },
  { paths: ["tests/functions/verdicts/"], word: "functions" },
  {
    paths: ["tests/contract/microvm/", "backends/microvm/backend.test.ts", "backends/microvm/templates.test.ts"],
    word: "microvm",
  },
  { paths: ["tests/fullvm/", "tests/contract/fullvm/"], word: "fullvm" },
];
const SLOW_TIMEOUT_MS = 120 * 60_000;

/** A whole run with more files that failed is broken, not unsteady. */
const MOST_UNSTEADY = 3;

const NO_COUNTS = { tests: 0, suites: 0, passed: 0, failed: 0, cancelled: 0, skipped: 0 };
/** What a run counted, in node's words. */
type Counts = Readonly<typeof NO_COUNTS>;

/** Node's own totals, in its order. */
const NODE_WORDS = [
  ["tests", "tests"],
  ["suites", "suites"],
  ["passed", "pass"],
  ["failed", "fail"],
  ["cancelled", "cancelled"],
  ["skipped", "skipped"],
] as const;

/** How a run of test files ended. */
interface Outcome {
  readonly counts: Counts;
  /** Of each file that ended by itself. */
  readonly byFile: ReadonlyMap<string, Counts>;
  /** Files of which not every test passed. */
  readonly failed: readonly string[];
}

/**
 * Runs the tests of the tree below `root/` and ends with node's totals. Words pick the files whose path has one of them:
 * `./dsec test security`, `./dsec test core/rpc`.
 *
 * In a run without words the few files that failed are run again, alone: what passes then is `unsteady`, named last, and a fault
 * of the test or of what it tests all the same. What fails again has failed.
 */
export async function runTests(words: readonly string[], root: string = ROOT): Promise<number> {
  const files = testFiles(root, words);
  const first = await runFiles(root, files);
  for (const { paths, word } of words.length === 0 ? SLOW : []) {
    process.stdout.write(`left out: ${paths.join(" and ")}, run by ./dsec test ${word}\n`);
  }
  if (first.failed.length === 0) return 0;
  if (words.length > 0 || first.failed.length > MOST_UNSTEADY) return 1;
  process.stdout.write(`\nagain, alone: ${first.failed.join(" ")}\n`);
  const again = await runFiles(root, first.failed, 1);
  for (const file of first.failed.filter((file) => !again.failed.includes(file))) {
    process.stdout.write(`unsteady: ${file} failed beside others and passed alone\n`);
  }
  process.stdout.write(`both runs together:\n${totals(first, again)}`);
  return again.failed.length === 0 ? 0 : 1;
}

/** Lines as node ends a run with, as if the files of the second had run in it only. */
function totals(first: Outcome, again: Outcome): string {
  // A file that crashed counts as one test.
  const replaced = first.failed.map((file) => first.byFile.get(file) ?? { ...NO_COUNTS, tests: 1, failed: 1 });
  const total = (name: keyof Counts) =>
    first.counts[name] + again.counts[name] - replaced.reduce((sum, counts) => sum + counts[name], 0);
  return NODE_WORDS.map(([name, word]) => `ℹ ${word} ${total(name)}\n`).join("");
}

/** Runs files, as many at once as there is room for: they start processes and mounts of their own, which only makes time limits lie. */
async function runFiles(
  root: string,
  files: readonly string[],
  concurrency = Math.max(1, Math.min(availableParallelism(), 4)),
): Promise<Outcome> {
  const stream = run({
    files: files.map((file) => `${root}${file}`),
    cwd: root,
    concurrency,
    timeout: files.some((path) => slowWord(path) !== undefined) ? SLOW_TIMEOUT_MS : FILE_TIMEOUT_MS,
  });
  let counts: Counts = NO_COUNTS;
  const byFile = new Map<string, Counts>();
  const failed = new Set<string>();
  stream.on("test:fail", ({ file }) => {
    // Of a test the file that defines it, which need not be one that was run; of a file that crashed itself.
    const name = relative(root, file ?? "");
    if (files.includes(name)) failed.add(name);
  });
  stream.on("test:summary", ({ file, counts: counted }) => {
    // Without a file it sums up all of them.
    if (file === undefined) counts = { ...NO_COUNTS, ...counted };
    else byFile.set(relative(root, file), { ...NO_COUNTS, ...counted });
  });
  for await (const text of stream.compose(new spec())) process.stdout.write(text);
  for (const [file, counted] of byFile) if (notPassed(counted) > 0) failed.add(file);
  return { counts, byFile, failed: notPassed(counts) > 0 && failed.size === 0 ? files : [...failed].sort() };
}

/** What was cancelled has not passed. */
function notPassed({ tests, passed, skipped }: Counts): number {
  return tests - passed - skipped;
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
