import { DsecError } from "#sdk";

/** One instruction as it stands in the file. */
export interface Instruction {
  /** Of its first line, counted from 1. */
  readonly line: number;
  /** In capitals. */
  readonly name: InstructionName;
  /** What follows the flags, continuation lines joined. */
  readonly text: string;
  /** `--chown=…` and the like, without the dashes. */
  readonly flags: ReadonlyMap<string, string>;
  /** The words of the exec form; undefined for any other form. */
  readonly words: readonly string[] | undefined;
}

/** Instructions and the flags that each may have. */
const FLAGS = {
  FROM: [],
  RUN: [],
  COPY: ["chown", "chmod"],
  ADD: ["chown", "chmod"],
  ENV: [],
  WORKDIR: [],
  USER: [],
  ARG: [],
  LABEL: [],
  CMD: [],
  ENTRYPOINT: [],
} as const;
/** What this build knows. */
export type InstructionName = keyof typeof FLAGS;

/** A parsed file. */
export interface Dockerfile {
  readonly instructions: readonly Instruction[];
  /** The character that continues lines and takes the meaning from a `$`. */
  readonly escapeMark: string;
}

/**
 * Parses the subset of Dockerfiles that a build takes. Throws `InvalidArgument` that names the line of the first instruction, flag or
 * form that is not in it: nothing is ignored.
 */
export function parseDockerfile(text: string): Dockerfile {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const escapeMark = escapeOf(lines);
  const instructions = logicalLines(lines, escapeMark).map(({ line, text: whole }) => instruction(line, whole));
  const [first] = instructions.filter(({ name }) => name !== "ARG");
  if (first?.name !== "FROM") throw refused(first?.line ?? 1, "the first instruction must be FROM");
  const second = instructions.filter(({ name }) => name === "FROM")[1];
  if (second !== undefined) throw refused(second.line, "a build has one stage: a second FROM is not supported");
  return { instructions, escapeMark };
}

/** The error for something that a build does not take. */
export function refused(line: number, what: string): DsecError {
  return new DsecError("InvalidArgument", `line ${line}: ${what}`, {
    hint: "docs/using/building.md has what a build takes",
    details: { line },
  });
}

/** Directives stand before everything else. */
function escapeOf(lines: readonly string[]): string {
  for (const line of lines) {
    const [, key = "", value = ""] = /^#\s*(\w+)\s*=\s*(\S+)\s*$/.exec(line) ?? [];
    if (key === "") break;
    if (key.toLowerCase() !== "escape") continue;
    if (value !== "\\" && value !== "`") throw refused(lines.indexOf(line) + 1, "escape must be \\ or `");
    return value;
  }
  return "\\";
}

function logicalLines(
  lines: readonly string[],
  escapeMark: string,
): { readonly line: number; readonly text: string }[] {
  const found: { line: number; text: string }[] = [];
  let open: { line: number; text: string } | undefined;
  for (const [index, raw] of lines.entries()) {
    // Comments and empty lines within an instruction are no part of it.
    if (/^\s*(#.*)?$/.test(raw)) continue;
    const text = raw.trimEnd();
    const continues = text.endsWith(escapeMark);
    const piece = continues ? text.slice(0, -1) : text;
    open = open === undefined ? { line: index + 1, text: piece } : { line: open.line, text: open.text + piece };
    if (continues) continue;
    found.push(open);
    open = undefined;
  }
  if (open !== undefined) found.push(open);
  return found;
}

function instruction(line: number, whole: string): Instruction {
  const [, word = "", rest = ""] = /^\s*(\S+)\s*([\s\S]*)$/.exec(whole) ?? [];
  const name = word.toUpperCase();
  if (!isKnown(name)) throw refused(line, `${word} is not supported`);
  const { flags, text } = flagsOf(line, name, rest.trim());
  if (text === "") throw refused(line, `${name} needs something after it`);
  if (/(^|\s)<<-?['"]?[A-Za-z_]/.test(text) && ["RUN", "COPY", "ADD"].includes(name)) {
    throw refused(line, "here-documents are not supported");
  }
  return { line, name, flags, text, words: wordsOf(text) };
}

function isKnown(name: string): name is InstructionName {
  return Object.hasOwn(FLAGS, name);
}

function flagsOf(line: number, name: InstructionName, text: string) {
  const flags = new Map<string, string>();
  const allowed: readonly string[] = FLAGS[name];
  let rest = text;
  for (;;) {
    const match = /^--([a-z-]+)(?:=(\S*))?\s*/.exec(rest);
    if (match === null) return { flags, text: rest };
    const [whole, flag = "", value] = match;
    if (!allowed.includes(flag) || value === undefined) throw refused(line, `${name} --${flag} is not supported`);
    flags.set(flag, value);
    rest = rest.slice(whole.length);
  }
}

/** The exec form is a JSON list of strings; what is not quite one is the shell form, as elsewhere. */
function wordsOf(text: string): readonly string[] | undefined {
  if (!text.startsWith("[")) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((word) => typeof word === "string") ? value : undefined;
  } catch {
    return undefined;
  }
}
