import { lineAt, type SourceFile } from "./tree.ts";

/** A function with a block body. */
export interface FunctionSpan {
  readonly name: string;
  readonly line: number;
  /** From the line of its name or arguments to its closing brace, both counted. */
  readonly lines: number;
  /** It defines tests (`describe`, `test`): as long as there are tests, each of which is measured on its own. */
  readonly isSuite: boolean;
}

/** Every function of a TypeScript, C or Python file, nested ones too, in the order of their ends. */
export function functionsOf(file: SourceFile): readonly FunctionSpan[] {
  if (file.path.endsWith(".ts")) return new TypeScriptFunctions(file.masked.code).find();
  if (/\.[ch]$/.test(file.path)) return functionsOfC(file.masked.code);
  return file.path.endsWith(".py") ? functionsOfPython(file.text) : [];
}

interface Token {
  readonly text: string;
  readonly at: number;
}

const CONTROL = new Set(["if", "for", "while", "switch", "catch", "with", "await"]);
const CLOSER_OF: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

class TypeScriptFunctions {
  readonly #code: string;
  readonly #tokens: readonly Token[];
  /** For every bracket token its partner. */
  readonly #partner: ReadonlyMap<number, number>;

  constructor(code: string) {
    this.#code = code;
    this.#tokens = [...code.matchAll(/=>|[\w$#]+|[^\s\w]/g)].map((match) => ({ text: match[0], at: match.index }));
    this.#partner = pair(this.#tokens);
  }

  find(): FunctionSpan[] {
    const found: FunctionSpan[] = [];
    this.#tokens.forEach((token, index) => {
      const open = this.#partner.get(index);
      if (token.text !== ")" || open === undefined) return;
      const body = this.#bodyAfter(open, index);
      if (body !== undefined) found.push(this.#span(open, body));
    });
    return found;
  }

  #text(index: number): string {
    return this.#tokens[index]?.text ?? "";
  }

  /** The brace that starts the body of the function whose arguments are `open`…`close`, if they are a function's. */
  #bodyAfter(open: number, close: number): number | undefined {
    if (CONTROL.has(this.#text(open - 1))) return undefined;
    const next = this.#text(close + 1);
    if (next === "{") return close + 1;
    if (next === "=>") return this.#text(close + 2) === "{" ? close + 2 : undefined;
    return next === ":" ? this.#bodyAfterType(close + 2) : undefined;
  }

  /** Walks over a return type: a brace where a type is due opens an object type, any other one the body. */
  #bodyAfterType(start: number): number | undefined {
    let typeIsDue = true;
    for (let index = start; index < this.#tokens.length; index++) {
      const text = this.#text(index);
      if (text === "=>" && this.#text(index + 1) === "{") return index + 1;
      if (text === "{" && !typeIsDue) return index;
      if (Object.hasOwn(CLOSER_OF, text)) {
        index = this.#partner.get(index) ?? this.#tokens.length;
        typeIsDue = false;
      } else if (/^([|&<,.]|=>)$/.test(text) || /^(is|keyof|typeof|readonly|asserts|extends|infer)$/.test(text)) {
        typeIsDue = true;
      } else if (/^[\w$#"'`>]/.test(text)) {
        typeIsDue = false;
      } else {
        return undefined;
      }
    }
    return undefined;
  }

  #span(open: number, body: number): FunctionSpan {
    const start = this.#tokens[open]?.at ?? 0;
    const end = this.#tokens[this.#partner.get(body) ?? body]?.at ?? this.#code.length;
    const line = lineAt(this.#code, start);
    return {
      name: this.#nameBefore(open),
      line,
      lines: lineAt(this.#code, end) - line + 1,
      isSuite: this.#holdsTests(body),
    };
  }

  #holdsTests(body: number): boolean {
    const end = this.#partner.get(body) ?? body;
    for (let index = body + 1; index < end; index++) {
      const isCall = this.#text(index + 1) === "(" && this.#text(index - 1) !== ".";
      if (isCall && /^(describe|test|it)$/.test(this.#text(index))) return true;
    }
    return false;
  }

  #nameBefore(open: number): string {
    let index = open - 1;
    if (this.#text(index) === "async") index--;
    if (/^[=:]$/.test(this.#text(index))) index--;
    const name = this.#text(index);
    return /^[\w$#]+$/.test(name) && name !== "function" ? name : "anonymous";
  }
}

function pair(tokens: readonly Token[]): Map<number, number> {
  const partner = new Map<number, number>();
  const open: number[] = [];
  tokens.forEach(({ text }, index) => {
    if (Object.hasOwn(CLOSER_OF, text)) open.push(index);
    if (text !== ")" && text !== "]" && text !== "}") return;
    const start = open.pop();
    if (start === undefined) return;
    partner.set(start, index);
    partner.set(index, start);
  });
  return partner;
}

function functionsOfC(code: string): FunctionSpan[] {
  const found: FunctionSpan[] = [];
  let depth = 0;
  let start: RegExpExecArray | null = null;
  for (const { 0: brace, index } of code.matchAll(/[{}]/g)) {
    // The name comes before the first parenthesis that follows the last finished declaration.
    if (brace === "{" && depth === 0) start = /([\w]+)\s*\([^;{}]*\)\s*$/.exec(code.slice(0, index));
    depth += brace === "{" ? 1 : -1;
    if (brace === "{" || depth !== 0 || start === null) continue;
    const line = lineAt(code, start.index);
    found.push({ name: start[1] ?? "", line, lines: lineAt(code, index) - line + 1, isSuite: false });
  }
  return found;
}

function functionsOfPython(text: string): FunctionSpan[] {
  const lines = text.split("\n");
  return lines.flatMap((line, index) => {
    const match = /^(\s*)(?:async\s+)?def\s+(\w+)/.exec(line);
    if (match === null) return [];
    const indent = (match[1] ?? "").length;
    const rest = lines.slice(index + 1);
    const next = rest.findIndex((other) => indentOf(other) <= indent && !/^\s*\)/.test(other));
    const end = next === -1 ? rest.length : next;
    const length = rest.slice(0, end).join("\n").trimEnd().split("\n").length;
    return [{ name: match[2] ?? "", line: index + 1, lines: length + 1, isSuite: false }];
  });
}

/** Blank lines belong to what is around them. */
function indentOf(line: string): number {
  return line.trim() === "" ? Number.POSITIVE_INFINITY : line.length - line.trimStart().length;
}
