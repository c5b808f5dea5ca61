import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Masked, maskC, maskNothing, maskTypeScript } from "./mask.ts";

/** One text file of the tree. Lines count from 1. */
export interface SourceFile {
  /** Relative to the root, with forward slashes. */
  readonly path: string;
  readonly text: string;
  /** The text with comments and string contents blanked, same length, and the comments. */
  readonly masked: Masked;
}

/** What checks look at: plain data, so that a test makes one from literals. */
export interface Tree {
  readonly files: readonly SourceFile[];
  get(path: string): SourceFile | undefined;
  /** True for a file of any kind, text or not, and for a folder. */
  has(path: string): boolean;
}

/** What a check found. `rule` is the name of the check. */
export interface Problem {
  readonly path: string;
  readonly line: number;
  readonly rule: string;
  readonly message: string;
}

/** Looks at the whole tree and changes nothing. No problems: an empty list. */
export type Check = (tree: Tree) => readonly Problem[];

const SKIPPED_FOLDERS = new Set(["node_modules", ".build", ".git", ".dsec"]);
const TEXT = /\.(ts|c|h|py|md|json|sh|tsv|yml|mk)$|(^|\/)(dsec|run|Makefile|LICENSE|\.gitignore|\.npmrc)$/;

/** Reads every text file under `root`, except what is installed or built. */
export function readTree(root: string): Tree {
  const paths = walk(root, "");
  const texts = paths.filter((path) => TEXT.test(path)).map((path) => [path, readFileSync(join(root, path), "utf8")]);
  return treeOf(Object.fromEntries(texts), paths);
}

/** A tree from path → text. `others` are paths that exist without being text. */
export function treeOf(texts: Readonly<Record<string, string>>, others: readonly string[] = []): Tree {
  const files = Object.entries(texts).map(([path, text]) => sourceFile(path, text));
  const byPath = new Map(files.map((file) => [file.path, file]));
  const known = new Set([...byPath.keys(), ...others].flatMap((path) => [path, ...parents(path)]));
  return { files, get: (path) => byPath.get(path), has: (path) => known.has(path) };
}

/** 1 for the first line. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at !== -1 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}

/** `path:line: rule: message`, as editors and people read it. */
export function formatProblem({ path, line, rule, message }: Problem): string {
  return `${path}:${line}: ${rule}: ${message}`;
}

/** Tests, suites and what only they use: they may reach further than the code beside them. */
export function isTestCode(path: string): boolean {
  return /\.test\.ts$|-suite\.ts$|(^|\/)testing\.ts$|(^|\/)(testdata|test-support)\/|^tests\//.test(path);
}

function sourceFile(path: string, text: string): SourceFile {
  let masked: Masked | undefined;
  return {
    path,
    text,
    get masked() {
      masked ??= mask(path, text);
      return masked;
    },
  };
}

function mask(path: string, text: string): Masked {
  if (path.endsWith(".ts")) return maskTypeScript(text);
  return /\.[ch]$/.test(path) ? maskC(text) : maskNothing(text);
}

function walk(root: string, folder: string): string[] {
  const names = readdirSync(join(root, folder)).sort();
  return names.flatMap((name) => {
    const path = folder === "" ? name : `${folder}/${name}`;
    if (SKIPPED_FOLDERS.has(name)) return [];
    // A file that somebody removes while the tree is read is not part of it.
    const entry = statSync(join(root, path), { throwIfNoEntry: false });
    if (entry?.isDirectory()) return walk(root, path);
    return entry?.isFile() ? [path] : [];
  });
}

function parents(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"));
}
