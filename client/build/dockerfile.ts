import { type HereDocument, logicalLines } from "./lines.ts";
import { refused } from "./refused.ts";

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
  readonly documents: readonly HereDocument[];
}

/** What begins with a FROM. */
export interface Stage {
  readonly from: Instruction;
  /** What FROM names, without `AS NAME`; variables are not put in yet. */
  readonly base: string;
  /** In small letters, since capitals make no difference. */
  readonly name: string | undefined;
  readonly instructions: readonly Instruction[];
}

/** Instructions and the flags that each may have. */
const FLAGS = {
  FROM: [],
  RUN: [],
  COPY: ["chown", "chmod", "from"],
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
  /** The ARGs before the first FROM. */
  readonly globals: readonly Instruction[];
  /** One at least. */
  readonly stages: readonly Stage[];
  /** The character that continues lines and takes the meaning from a `$`. */
  readonly escapeMark: string;
}

const STAGE = /^(\S+)(?:\s+AS\s+(\S+))?$/i;
const STAGE_NAME = /^[a-z][a-z0-9_.-]*$/;

/**
 * Parses the subset of Dockerfiles that a build takes. Throws `InvalidArgument` that names the line of the first instruction, flag or
 * form that is not in it: nothing is ignored.
 */
export function parseDockerfile(text: string): Dockerfile {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const escapeMark = escapeOf(lines);
  const instructions = logicalLines(lines, escapeMark).map(instruction);
  const first = instructions.findIndex(({ name }) => name !== "ARG");
  if (instructions[first]?.name !== "FROM")
    throw refused(instructions[first]?.line ?? 1, "the first instruction must be FROM");
  const stages: Stage[] = [];
  for (let at = first; at < instructions.length; ) {
    const after = instructions.slice(at + 1);
    const end = after.findIndex(({ name }) => name === "FROM");
    const own = end < 0 ? after : after.slice(0, end);
    stages.push(stage(instructions[at], own, stages));
    at += own.length + 1;
  }
  return { globals: instructions.slice(0, first), stages, escapeMark };
}

function stage(from: Instruction | undefined, instructions: readonly Instruction[], before: readonly Stage[]): Stage {
  if (from === undefined) throw new Error("a stage begins with a FROM");
  const [, base, title] = STAGE.exec(from.text) ?? [];
  if (base === undefined) throw refused(from.line, "FROM takes a name, and AS with the name of the stage");
  const name = title?.toLowerCase();
  if (name !== undefined && !STAGE_NAME.test(name)) throw refused(from.line, `${title} is no name of a stage`);
  if (name !== undefined && before.some((each) => each.name === name))
    throw refused(from.line, `there is a stage ${title} already`);
  return { from, base, name, instructions };
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

function instruction({ line, text: whole, documents }: ReturnType<typeof logicalLines>[number]): Instruction {
  const [, word = "", rest = ""] = /^\s*(\S+)\s*([\s\S]*)$/.exec(whole) ?? [];
  const name = word.toUpperCase();
  if (!isKnown(name)) throw refused(line, `${word} is not supported`);
  const { flags, text } = flagsOf(line, name, rest.trim());
  if (text === "") throw refused(line, `${name} needs something after it`);
  return { line, name, flags, text, documents, words: documents.length > 0 ? undefined : wordsOf(text) };
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
