import { type FunctionSpan, functionsOf } from "./functions.ts";
import { isTestCode, type Problem, type SourceFile, type Tree } from "./tree.ts";

/** What one person takes in at a time: a file on a few screens, a function on one. */
const FILE_LINES = { cap: 400, median: 120, p90: 300 };
const FUNCTION_LINES = { cap: 60, median: 12, p90: 40 };

/** Median and 90th percentile of sizes, in lines. */
export interface Sizes {
  readonly count: number;
  readonly median: number;
  readonly p90: number;
}

/** Sizes of the code that ships, tests left out, and how many lines of tests there are to a line of it. */
export interface SizeReport {
  readonly files: Sizes;
  readonly functions: Sizes;
  readonly testRatio: number;
}

/** No file and no function is over its cap. */
export function checkSizes(tree: Tree): readonly Problem[] {
  return tree.files.filter(isSource).flatMap((file) => [...checkFile(file), ...checkFunctions(file)]);
}

/** The typical file and function stay small: a tree may keep every cap and still be hard to read. */
export function checkTypicalSizes(tree: Tree): readonly Problem[] {
  const { files, functions } = reportSizes(tree);
  const problems: Problem[] = [];
  const hold = (what: string, is: number, bound: number) => {
    if (is > bound)
      problems.push({ path: ".", line: 1, rule: "sizes", message: `${what} is ${is} lines, over ${bound}` });
  };
  hold("the median file", files.median, FILE_LINES.median);
  hold("the 90th percentile of files", files.p90, FILE_LINES.p90);
  hold("the median function", functions.median, FUNCTION_LINES.median);
  hold("the 90th percentile of functions", functions.p90, FUNCTION_LINES.p90);
  return problems;
}

/** Measures, judges nothing. */
export function reportSizes(tree: Tree): SizeReport {
  const sources = tree.files.filter(isSource);
  const shipped = sources.filter((file) => !isTestCode(file.path));
  const lengths = shipped.map(linesOf);
  const testLines = total(sources.filter((file) => isTestCode(file.path)).map(linesOf));
  return {
    files: sizes(lengths),
    functions: sizes(shipped.flatMap((file) => functionsOf(file).map((span) => span.lines))),
    testRatio: testLines / Math.max(1, total(lengths)),
  };
}

function checkFile(file: SourceFile): Problem[] {
  const lines = linesOf(file);
  if (lines <= FILE_LINES.cap) return [];
  const message = `${lines} lines, over ${FILE_LINES.cap}: split it by concern`;
  return [{ path: file.path, line: 1, rule: "sizes", message }];
}

function checkFunctions(file: SourceFile): Problem[] {
  return functionsOf(file)
    .filter((span) => span.lines > FUNCTION_LINES.cap && !(span.isSuite && isTestCode(file.path)))
    .map((span) => ({ path: file.path, line: span.line, rule: "sizes", message: tooLong(span) }));
}

function tooLong(span: FunctionSpan): string {
  return `${span.name} has ${span.lines} lines, over ${FUNCTION_LINES.cap}: split it`;
}

/** TypeScript, C, Python, and the scripts that have no ending. */
function isSource(file: SourceFile): boolean {
  return /\.(ts|c|h|py|sh)$/.test(file.path) || file.text.startsWith("#!");
}

function linesOf(file: SourceFile): number {
  return file.text.trimEnd().split("\n").length;
}

function sizes(values: readonly number[]): Sizes {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))] ?? 0;
  return { count: sorted.length, median: at(0.5), p90: at(0.9) };
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
