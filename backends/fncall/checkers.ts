import type { FunctionChecker } from "#core/functions.ts";

const WHITE_SPACE = /[ \t\r\n\v\f]+/;

/** Whether an answer is what was expected, for checkers that need no program. Bytes are compared; words are split at ASCII white space. */
export function accepts(
  checker: Exclude<FunctionChecker, { readonly type: "program" }>,
  expected: Uint8Array,
  output: Uint8Array,
): boolean {
  if (checker.type === "exact") return Buffer.compare(expected, output) === 0;
  const wanted = words(expected);
  const given = words(output);
  if (wanted.length !== given.length) return false;
  if (checker.type === "tokens") return wanted.every((word, index) => word === given[index]);
  return wanted.every((word, index) => isNear(word, given[index] ?? "", checker.tolerance));
}

function words(bytes: Uint8Array): readonly string[] {
  return Buffer.from(bytes).toString("latin1").split(WHITE_SPACE).filter(Boolean);
}

/** A decimal number, infinity or NaN, as languages print them. */
const NUMBER = /^[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf(inity)?|nan)$/i;

function isNear(wanted: string, given: string, tolerance: number): boolean {
  if (wanted === given) return true;
  if (!NUMBER.test(wanted) || !NUMBER.test(given)) return false;
  const [a, b] = [numberOf(wanted), numberOf(given)];
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) && Number.isNaN(b);
  if (!Number.isFinite(a) || !Number.isFinite(b)) return a === b;
  return Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(a));
}

function numberOf(word: string): number {
  const plain = word.toLowerCase();
  if (plain.includes("nan")) return Number.NaN;
  if (plain.includes("inf")) return plain.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  return Number(word);
}
