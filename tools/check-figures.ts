import { tableRows } from "./markdown.ts";
import type { Problem, Tree } from "./tree.ts";

const SPECIFICATION = "SPECIFICATION.md";
const FIGURES = "bench/figures.tsv";

/** SPECIFICATION.md and bench/figures.tsv promise the same figures with the same bounds, each with a bench that exists. */
export function checkFigures(tree: Tree): readonly Problem[] {
  const promised = promisedFigures(tree);
  const measured = measuredFigures(tree);
  return [
    ...[...promised]
      .filter(([name]) => !measured.has(name))
      .map(([name]) => problem(SPECIFICATION, `${name} is in no bench`)),
    ...[...measured].flatMap(([name, figure]) => {
      const bound = promised.get(name);
      if (bound === undefined) return [problem(SPECIFICATION, `${name} is measured and not promised`)];
      if (bound !== figure.bound)
        return [problem(SPECIFICATION, `${name}: ${bound} here, ${figure.bound} in ${FIGURES}`)];
      return tree.has(`bench/${figure.bench}.ts`)
        ? []
        : [problem(FIGURES, `${name}: bench/${figure.bench}.ts is missing`)];
    }),
  ];
}

/** Name → bound, as in "≤ 3 ms". A row is a figure when its first cell is a dotted name in backticks. */
function promisedFigures(tree: Tree): Map<string, string> {
  const page = tree.get(SPECIFICATION);
  const rows = page === undefined ? [] : tableRows(page);
  return new Map(
    rows.flatMap(({ cells }) => {
      const name = /^`(\w+\.\w+)`$/.exec(cells[0] ?? "")?.[1];
      return name === undefined ? [] : [[name, cells[2] ?? ""]];
    }),
  );
}

function measuredFigures(tree: Tree): Map<string, { readonly bench: string; readonly bound: string }> {
  const lines = (tree.get(FIGURES)?.text ?? "").split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const [bench = "", name = "", op = "", bound = "", unit = ""] = line.split("\t");
      const sign = { "<=": "≤", ">=": "≥" }[op] ?? op;
      return [name, { bench, bound: `${sign} ${Number(bound).toLocaleString("en")} ${unit}` }];
    }),
  );
}

function problem(path: string, message: string): Problem {
  return { path, line: 1, rule: "figures", message };
}
