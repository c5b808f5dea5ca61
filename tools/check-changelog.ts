import type { Problem, Tree } from "./tree.ts";

const PATH = "CHANGELOG.md";
const VERSION = /^## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\))$/;
const GROUP = /^### (Added|Changed|Deprecated|Removed|Fixed|Security)$/;

/** CHANGELOG.md: `## Unreleased` first, then dated versions; under each the known groups; under those, sentences. */
export function checkChangelog(tree: Tree): readonly Problem[] {
  const file = tree.get(PATH);
  if (file === undefined) return [problem(1, "there is no changelog")];
  const lines = file.text.split("\n");
  const firstVersion = lines.findIndex((line) => line.startsWith("## "));
  const head = lines[0] === "# Changelog" ? [] : [problem(1, "starts with # Changelog")];
  const order =
    lines[firstVersion] === "## Unreleased" ? [] : [problem(firstVersion + 1, "the first version is Unreleased")];
  return [...head, ...order, ...lines.flatMap((line, index) => judge(line, index, lines))];
}

function judge(line: string, index: number, lines: readonly string[]): Problem[] {
  if (line.startsWith("## ") && !VERSION.test(line)) return [problem(index + 1, "a version is x.y.z (yyyy-mm-dd)")];
  if (line.startsWith("### ") && !GROUP.test(line)) return [problem(index + 1, `${line.slice(4)} is no known group`)];
  if (!line.startsWith("- ")) return [];
  const text = sentence(lines, index);
  return /[.)]$/.test(text) ? [] : [problem(index + 1, "an entry is a sentence and ends with a full stop")];
}

/** An entry with its continuation lines. */
function sentence(lines: readonly string[], start: number): string {
  const rest = lines.slice(start + 1);
  const end = rest.findIndex((line) => !line.startsWith("  "));
  return [lines[start], ...rest.slice(0, end === -1 ? undefined : end)].join(" ").trimEnd();
}

function problem(line: number, message: string): Problem {
  return { path: PATH, line, rule: "changelog", message };
}
