import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Measured } from "./measured.ts";

/** What a figure is held to. */
export interface Bound {
  readonly op: "<=" | ">=";
  readonly bound: number;
  readonly unit: string;
  readonly meaning: string;
}

/** One JSON line on stdout, and whether the bound holds on stderr. A missed bound is a result, not an error. */
export function printFigure(measured: Measured): void {
  const bound = boundOf(measured.name);
  const { name, value, peers = {}, floor, note } = measured;
  console.log(
    JSON.stringify({
      name,
      value: round(value),
      unit: bound.unit,
      peers: roundAll(peers),
      floor: floor && round(floor),
      note,
    }),
  );
  const verdict = holds(bound, value) ? "holds" : "MISSED";
  console.error(`${name}: ${round(value)} ${bound.unit}, bound ${bound.op} ${bound.bound}: ${verdict}`);
}

/** The promise about a figure. Throws for a name that `figures.tsv` lacks. */
export function boundOf(name: string): Bound {
  const row = readFileSync(join(import.meta.dirname, "figures.tsv"), "utf8")
    .split("\n")
    .map((line) => line.split("\t"))
    .find((cells) => cells[1] === name);
  if (row === undefined) throw new Error(`figures.tsv has no ${name}`);
  const [, , op = "", bound = "", unit = "", meaning = ""] = row;
  return { op: op === "<=" ? "<=" : ">=", bound: Number(bound), unit, meaning };
}

/** True when `value` keeps the promise. */
export function holds({ op, bound }: Bound, value: number): boolean {
  return op === "<=" ? value <= bound : value >= bound;
}

/** Four significant digits: more would claim a precision that no run has. */
export function round(value: number): number {
  return Number(value.toPrecision(4));
}

function roundAll(values: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, round(value)]));
}
