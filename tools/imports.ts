import { posix } from "node:path";
import { lineAt, type SourceFile, type Tree } from "./tree.ts";

/** One `import`, `export … from`, `import()` or `new URL("./x.ts", import.meta.url)` of a file. */
export interface Import {
  readonly specifier: string;
  readonly line: number;
  /** Nothing of it runs: `import type` or `export type … from`. */
  readonly typeOnly: boolean;
  readonly form: "static" | "dynamic" | "url";
}

const FORMS = [
  { form: "static", pattern: /(?:^|[;}\s])(?:import|export)\s+(?:type\s+)?(?:[\w*$\s{},]*?\bfrom\s*)?(["'])/g },
  { form: "dynamic", pattern: /(?<![\w$.#])import\s*\(\s*(["'])/g },
  { form: "url", pattern: /\bnew\s+URL\s*\(\s*(["'])/g },
  { form: "url", pattern: /\bimport\.meta\.resolve\s*\(\s*(["'])/g },
] as const;

/** Every import of a TypeScript file; what stands in comments and strings is none. */
export function importsOf(file: SourceFile): readonly Import[] {
  const { code } = file.masked;
  return FORMS.flatMap(({ form, pattern }) =>
    [...code.matchAll(pattern)].map((match) => {
      const quote = match[1] ?? "";
      const start = match.index + match[0].length;
      const specifier = file.text.slice(start, code.indexOf(quote, start));
      const typeOnly = /^\W*(?:import|export)\s+type\s+[\w{*]/.test(match[0]);
      return { specifier, line: lineAt(code, start), typeOnly, form };
    }),
  );
}

/** The map of `#` imports in the root's package.json: `#core/*` → `./core/*`. */
export function subpathsOf(tree: Tree): ReadonlyMap<string, string> {
  const text = tree.get("package.json")?.text ?? "{}";
  const { imports = {} }: { imports?: Record<string, string> } = JSON.parse(text);
  return new Map(Object.entries(imports));
}

/** The path of the file that `specifier` names from `from`; `undefined` for a built-in module or a package. */
export function resolveImport(
  specifier: string,
  from: string,
  subpaths: ReadonlyMap<string, string>,
): string | undefined {
  if (specifier.startsWith(".")) return posix.join(posix.dirname(from), specifier);
  if (!specifier.startsWith("#")) return undefined;
  for (const [pattern, target] of subpaths) {
    const rest = matchSubpath(specifier, pattern);
    if (rest !== undefined) return posix.normalize(target.replace("*", rest));
  }
  return posix.normalize(specifier.slice(1));
}

function matchSubpath(specifier: string, pattern: string): string | undefined {
  if (!pattern.endsWith("*")) return specifier === pattern ? "" : undefined;
  const stem = pattern.slice(0, -1);
  return specifier.startsWith(stem) ? specifier.slice(stem.length) : undefined;
}
