import { posix } from "node:path";
import { anchorsOf, linksOf, proseLines } from "./markdown.ts";
import type { Problem, SourceFile, Tree } from "./tree.ts";

/** Designs and records may name files that are yet to come or gone. */
const TIMELESS = /^docs\/design\/(architecture|plan-[\w-]+)\.md$|^docs\/design\/decisions\/|^CHANGELOG\.md$/;
const PATH_IN_CODE = /`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|c|h|md|json|sh|tsv))`/g;

/** Links lead to a file and an anchor that exist, files named in text exist, and every page is linked from somewhere. */
export function checkLinks(tree: Tree): readonly Problem[] {
  const pages = tree.files.filter((file) => file.path.endsWith(".md"));
  return [
    ...pages.flatMap((page) => brokenLinks(page, tree)),
    ...pages.filter((page) => !TIMELESS.test(page.path)).flatMap((page) => missingFiles(page, tree)),
    ...orphans(pages),
  ];
}

function brokenLinks(page: SourceFile, tree: Tree): Problem[] {
  return linksOf(page).flatMap(({ target, line }) => {
    if (/^[a-z]+:/.test(target)) return [];
    const [path = "", anchor] = target.split("#");
    const full = path === "" ? page.path : resolve(page, path);
    if (!tree.has(full)) return [problem(page, line, `${target} leads to nothing`)];
    const file = tree.get(full);
    const isFound = anchor === undefined || file === undefined || anchorsOf(file).has(anchor);
    return isFound ? [] : [problem(page, line, `${target}: ${full} has no such heading`)];
  });
}

function missingFiles(page: SourceFile, tree: Tree): Problem[] {
  return proseLines(page).flatMap((text, index) =>
    [...text.matchAll(PATH_IN_CODE)]
      .map((match) => match[1] ?? "")
      .filter((path) => !tree.has(path) && !tree.has(resolve(page, path)))
      .map((path) => problem(page, index + 1, `${path} does not exist`)),
  );
}

/** Pages under docs/ that no other page links to. */
function orphans(pages: readonly SourceFile[]): Problem[] {
  const linked = new Set(
    pages.flatMap((page) => linksOf(page).map(({ target }) => resolve(page, target.split("#")[0] ?? ""))),
  );
  return pages
    .filter((page) => page.path.startsWith("docs/") && page.path !== "docs/README.md" && !linked.has(page.path))
    .map((page) => problem(page, 1, "no page links here: add it to docs/README.md"));
}

function resolve(page: SourceFile, target: string): string {
  return posix.join(posix.dirname(page.path), decodeURIComponent(target)).replace(/\/$/, "");
}

function problem(page: SourceFile, line: number, message: string): Problem {
  return { path: page.path, line, rule: "links", message };
}
