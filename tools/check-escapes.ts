import { lineAt, type Problem, type SourceFile, type Tree } from "./tree.ts";

interface Rule {
  readonly pattern: RegExp;
  readonly message: string;
}

// Split so that this file does not find itself.
const UNFINISHED = new RegExp(
  `\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"].join("|")})\\b|not implemented`,
  "g",
);

/** Looked for in comments. */
const IN_COMMENTS: readonly Rule[] = [
  { pattern: UNFINISHED, message: "unfinished work: finish it or open an issue" },
  { pattern: /@ts-(ignore|expect-error|nocheck)/g, message: "type errors are fixed, not hidden" },
  {
    pattern: /biome-ignore(-all)? lint\/(suspicious\/noExplicitAny|style\/noNonNullAssertion|style\/noDefaultExport)/g,
    message: "this rule has no exceptions",
  },
  { pattern: /biome-ignore [\w/]+:?\s*(<explanation>)?\s*$/gm, message: "an exception from a rule gives its reason" },
  { pattern: /eslint-|prettier-ignore|istanbul/g, message: "a directive for a tool that is not used here" },
  {
    pattern: /SPDX-License-Identifier|Licensed under the|Copyright \(c\)/gi,
    message: "no licence headers: LICENSE says it",
  },
];

/** Looked for in code. */
const IN_CODE: readonly Rule[] = [
  {
    pattern: /(?<![\w$.])any(?=\s*[,;>)\]|&[=]|\s*$)(?<=[:<|&(,]\s*any|\bas\s+any)/gm,
    message: "any switches the compiler off",
  },
  { pattern: /\bas\s+unknown\s+as\b/g, message: "a cast through unknown: narrow the value instead" },
  { pattern: /\b(?:test|it|describe)\.only\b|\bonly:\s*true/g, message: "only hides every other test" },
  { pattern: /\b(?:test|it|describe)\.(?:skip|todo)\b/g, message: "a skip prints its reason: use { skip: reason }" },
  { pattern: /\bskip:\s*true\b|\bt(?:est)?\.skip\(\s*\)|\btodo:/g, message: "a skip prints its reason" },
];

/** No escape hatches, nothing unfinished, no test switched off without a reason that it prints. */
export function checkEscapes(tree: Tree): readonly Problem[] {
  return tree.files
    .filter((file) => /\.(ts|c|h|py|sh)$/.test(file.path))
    .flatMap((file) => [
      ...inComments(file),
      ...(file.path.endsWith(".ts") ? find(file, file.masked.code, 0, IN_CODE) : []),
    ]);
}

function inComments(file: SourceFile): Problem[] {
  return file.masked.comments.flatMap((comment) => find(file, comment.text, comment.start, IN_COMMENTS));
}

function find(file: SourceFile, text: string, offset: number, rules: readonly Rule[]): Problem[] {
  return rules.flatMap(({ pattern, message }) =>
    [...text.matchAll(pattern)].map((match) => ({
      path: file.path,
      line: lineAt(file.text, offset + match.index),
      rule: "escapes",
      message: `${match[0].trim()}: ${message}`,
    })),
  );
}
