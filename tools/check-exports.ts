import { isTestCode, lineAt, type Problem, type SourceFile, type Tree } from "./tree.ts";

const EXPORT =
  /^export\s+(?:declare\s+)?(?:(?:async\s+)?function\*?|(?:abstract\s+)?class|interface|type|const)\s+([\w$]+)/gm;

/** Every export has a doc comment and a name; nothing is re-exported wholesale. */
export function checkExports(tree: Tree): readonly Problem[] {
  return tree.files
    .filter((file) => file.path.endsWith(".ts"))
    .flatMap((file) => [...forbiddenForms(file), ...(file.path.endsWith(".test.ts") ? [] : undocumented(file))]);
}

/** The names that a file declares and exports, with the line of each. */
export function exportedNames(file: SourceFile): readonly { readonly name: string; readonly line: number }[] {
  return [...file.masked.code.matchAll(EXPORT)].map((match) => ({
    name: match[1] ?? "",
    line: lineAt(file.text, match.index),
  }));
}

function undocumented(file: SourceFile): Problem[] {
  return exportedNames(file)
    .filter(({ line }) => !hasDocComment(file, line))
    .map(({ name, line }) => ({
      path: file.path,
      line,
      rule: "exports",
      message: `${name} has no doc comment: say what it promises`,
    }));
}

/**
 * A doc comment opens the paragraph of the export. What follows without a blank line shares it: a run of constants, a type
 * taken from its constant, overloads.
 */
function hasDocComment(file: SourceFile, line: number): boolean {
  const lines = file.text.split("\n");
  for (let above = line - 1; above > 0 && lines[above - 1]?.trim() !== ""; above--) {
    if (/^(\/\*\*.*| )\*\/$/.test(lines[above - 1] ?? "")) return isDoc(file, above);
  }
  return false;
}

function isDoc(file: SourceFile, line: number): boolean {
  const comment = file.masked.comments.findLast(({ end }) => lineAt(file.text, end - 1) === line);
  return comment?.text.startsWith("/**") === true;
}

const FORBIDDEN = [
  { pattern: /^export\s+default\b/gm, message: "a default export has no name to search for: export by name" },
  { pattern: /^export\s+\*/gm, message: "export * hides what the face of a folder is: export by name" },
  { pattern: /^(?:export\s+)?let\s/gm, message: "module state: pass it as an argument or keep it in an object" },
] as const;

function forbiddenForms(file: SourceFile): Problem[] {
  const rules = FORBIDDEN.filter(({ pattern }) => !(isTestCode(file.path) && pattern.source.includes("let")));
  return rules.flatMap(({ pattern, message }) =>
    [...file.masked.code.matchAll(pattern)].map((match) => ({
      path: file.path,
      line: lineAt(file.text, match.index),
      rule: "exports",
      message,
    })),
  );
}
