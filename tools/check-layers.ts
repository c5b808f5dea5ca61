import { LAYERS, PURE_LAYERS, TYPE_ONLY } from "../layers.ts";
import { type Import, importsOf, resolveImport, subpathsOf } from "./imports.ts";
import { isTestCode, lineAt, type Problem, type SourceFile, type Tree } from "./tree.ts";

/** Built-in modules and packages that reach outside the process; pure layers do without them. */
const OUTSIDE =
  /^(node:)?(fs|net|http|https|http2|tls|dgram|dns|child_process|cluster|worker_threads|os|sqlite|readline|repl|inspector|process|tty)(\/|$)|^(koffi|undici|ws|fastify|pino)$/;

/** Every import stays inside what `layers.ts` allows; pure layers reach nothing outside the process. */
export function checkLayers(tree: Tree): readonly Problem[] {
  const subpaths = subpathsOf(tree);
  return tree.files
    .filter((file) => file.path.endsWith(".ts") && file.path !== "layers.ts")
    .flatMap((file) => [
      ...importsOf(file).flatMap((entry) => judge(file, entry, resolveImport(entry.specifier, file.path, subpaths))),
      ...impureWords(file),
    ]);
}

/** The layer of a path: its longest prefix in the table. */
export function layerOf(path: string): string | undefined {
  const layers = Object.keys(LAYERS).filter((layer) => path.startsWith(`${layer}/`));
  return layers.sort((a, b) => b.length - a.length)[0];
}

function judge(file: SourceFile, entry: Import, target: string | undefined): Problem[] {
  const from = layerOf(file.path);
  const problem = (message: string): Problem[] => [{ path: file.path, line: entry.line, rule: "layers", message }];
  if (from === undefined) return problem(`${file.path} is in no layer of layers.ts`);
  if (target === undefined) return judgePackage(file, entry, problem);
  if (entry.form === "url" && !target.endsWith(".ts")) return [];
  if (target === "layers.ts" && from === "tools") return [];
  const to = layerOf(target);
  if (to === undefined) return problem(`${entry.specifier} is in no layer of layers.ts`);
  if (to === from) return [];
  if (entry.specifier.startsWith(".")) return problem(`${entry.specifier} leaves ${from}: use the # import of ${to}`);
  if (!mayImport(from, to, isTestCode(file.path))) return problem(`${from} may not import ${to}`);
  const typesOnly = TYPE_ONLY[from]?.includes(to) === true && !entry.typeOnly && !isTestCode(file.path);
  return typesOnly ? problem(`${from} may import ${to} for its types only: use import type`) : [];
}

/** Tests do not ship: they may join what the black-box suites may. */
function mayImport(from: string, to: string, isTest: boolean): boolean {
  return LAYERS[from]?.includes(to) === true || (isTest && LAYERS.tests?.includes(to) === true);
}

function judgePackage(file: SourceFile, entry: Import, problem: (message: string) => Problem[]): Problem[] {
  if (isTestCode(file.path) || entry.form === "url") return [];
  if (isPure(file.path) && OUTSIDE.test(entry.specifier) && !entry.typeOnly) {
    return problem(`${entry.specifier} reaches outside the process: take what it does as an argument`);
  }
  const isShipped = layerOf(file.path) === "client/sdk" && !entry.specifier.startsWith("node:");
  return isShipped ? problem(`${entry.specifier}: the SDK has no run-time dependency`) : [];
}

/** `process` and `fetch` need no import. */
function impureWords(file: SourceFile): Problem[] {
  if (!isPure(file.path) || isTestCode(file.path)) return [];
  return [...file.masked.code.matchAll(/(?<![\w$.#])(process\s*\.|fetch\s*\()/g)].map((match) => ({
    path: file.path,
    line: lineAt(file.text, match.index),
    rule: "layers",
    message: `${match[0]} reaches outside the process: take what it does as an argument`,
  }));
}

function isPure(path: string): boolean {
  return PURE_LAYERS.some((layer) => path.startsWith(`${layer}/`));
}
