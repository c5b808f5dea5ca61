import { exportedNames } from "./check-exports.ts";
import { importsOf, resolveImport, subpathsOf } from "./imports.ts";
import { isTestCode, type Problem, type Tree } from "./tree.ts";

/** Files that something other than an import starts or reads. */
const ENTRIES =
  /^(bin\/[\w-]+\.ts|bench\/main\.ts|client\/sdk\/index\.ts|tools\/(main|check-commits)\.ts|tests\/contract\/client\.ts|layers\.ts)$/;
/** Product code whose whole purpose is to be used by tests. */
const FOR_TESTS = /^backends\/fake\//;

/** Every file of the product is reached from an entry point, and every exported value is used in another file. */
export function checkDead(tree: Tree): readonly Problem[] {
  return [...deadFiles(tree), ...deadExports(tree)];
}

function deadFiles(tree: Tree): Problem[] {
  const paths = tree.files.map((file) => file.path).filter((path) => path.endsWith(".ts"));
  const product = reach(
    tree,
    paths.filter((path) => ENTRIES.test(path)),
  );
  const withTests = reach(tree, [...product, ...paths.filter((path) => path.endsWith(".test.ts"))]);
  return paths.flatMap((path) => {
    if (product.has(path)) return [];
    if (withTests.has(path) && (isTestCode(path) || FOR_TESTS.test(path))) return [];
    const message = withTests.has(path) ? "only tests use this file" : "nothing uses this file";
    return [{ path, line: 1, rule: "dead", message }];
  });
}

function reach(tree: Tree, roots: readonly string[]): Set<string> {
  const subpaths = subpathsOf(tree);
  const reached = new Set<string>();
  const waiting = [...roots];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    const file = tree.get(path);
    if (file === undefined || reached.has(path)) continue;
    reached.add(path);
    for (const { specifier } of importsOf(file)) waiting.push(resolveImport(specifier, path, subpaths) ?? "");
  }
  return reached;
}

/** Types may be exported for their readers; a value that no other file names is private or dead. */
function deadExports(tree: Tree): Problem[] {
  const files = tree.files.filter((file) => file.path.endsWith(".ts"));
  const users = countUsers(files.map((file) => file.masked.code));
  return files
    .filter((file) => file.path !== "layers.ts")
    .flatMap((file) =>
      exportedNames(file)
        .filter(({ name, line }) => users.get(name) === 1 && isValue(file.text, line))
        .map(({ name, line }) => ({
          path: file.path,
          line,
          rule: "dead",
          message: `no other file uses ${name}: do not export it`,
        })),
    );
}

/** For every word the number of files that contain it. */
function countUsers(codes: readonly string[]): Map<string, number> {
  const users = new Map<string, number>();
  for (const code of codes) {
    for (const word of new Set(code.match(/[\w$]+/g))) users.set(word, (users.get(word) ?? 0) + 1);
  }
  return users;
}

function isValue(text: string, line: number): boolean {
  return !/^export\s+(type|interface)\b/.test(text.split("\n")[line - 1] ?? "");
}
