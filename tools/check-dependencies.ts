import { importsOf } from "./imports.ts";
import { tableRows } from "./markdown.ts";
import { isTestCode, type Problem, type Tree } from "./tree.ts";

const PAGE = "docs/contributing/dependencies.md";
const MANIFEST = "package.json";

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Packages are pinned, explained on one page, and declared where they are used: what ships uses no development package. */
export function checkDependencies(tree: Tree): readonly Problem[] {
  const manifest: Manifest = JSON.parse(tree.get(MANIFEST)?.text ?? "{}");
  const all = { ...manifest.optionalDependencies, ...manifest.dependencies, ...manifest.devDependencies };
  return [...unpinned(all), ...unexplained(tree, all), ...undeclared(tree, manifest)];
}

function unpinned(all: Readonly<Record<string, string>>): Problem[] {
  return Object.entries(all)
    .filter(([, version]) => !/^\d+\.\d+\.\d+$/.test(version))
    .map(([name, version]) => problem(MANIFEST, `${name} ${version} is no exact version`));
}

function unexplained(tree: Tree, all: Readonly<Record<string, string>>): Problem[] {
  const page = tree.get(PAGE);
  const rows = new Map(
    (page === undefined ? [] : tableRows(page)).map(({ cells }) => [(cells[0] ?? "").replaceAll("`", ""), cells]),
  );
  return Object.entries(all).flatMap(([name, version]) => {
    const row = rows.get(name);
    if (row === undefined) return [problem(PAGE, `${name} is not explained`)];
    return row[1] === version ? [] : [problem(PAGE, `${name} is ${version} in ${MANIFEST}, ${row[1]} here`)];
  });
}

function undeclared(tree: Tree, manifest: Manifest): Problem[] {
  const shipped = new Set(Object.keys(manifest.dependencies ?? {}));
  const development = new Set(Object.keys(manifest.devDependencies ?? {}));
  return tree.files
    .filter((file) => file.path.endsWith(".ts"))
    .flatMap((file) =>
      importsOf(file)
        .map(({ specifier, line, typeOnly }) => ({ name: packageOf(specifier), line, typeOnly }))
        .filter(({ name }) => name !== undefined && !shipped.has(name))
        .filter(({ name, typeOnly }) => !((typeOnly || isTestCode(file.path)) && development.has(name ?? "")))
        .map(({ name, line }) => ({ path: file.path, line, rule: "dependencies", message: `${name} is not declared` })),
    );
}

function packageOf(specifier: string): string | undefined {
  if (/^(\.|#|node:|file:|data:)/.test(specifier)) return undefined;
  return /^(@[\w.-]+\/)?[\w.-]+/.exec(specifier)?.[0];
}

function problem(path: string, message: string): Problem {
  return { path, line: 1, rule: "dependencies", message };
}
