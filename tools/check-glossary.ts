import { proseLines, tableRows } from "./markdown.ts";
import type { Problem, Tree } from "./tree.ts";

const GLOSSARY = "docs/glossary.md";
const ARCHITECTURE = "docs/design/architecture.md";

/** The glossary explains every word of the architecture, and no page uses a word that the glossary replaces. */
export function checkGlossary(tree: Tree): readonly Problem[] {
  const glossary = tree.get(GLOSSARY);
  if (glossary === undefined) return [{ path: GLOSSARY, line: 1, rule: "glossary", message: "there is no glossary" }];
  const rows = tableRows(glossary);
  const known = new Set(rows.map(({ cells }) => unquote(cells[0])));
  const replaced = rows.flatMap(({ cells }) => listOf(cells[2]).map((wrong) => ({ wrong, right: unquote(cells[0]) })));
  return [...missingWords(tree, known), ...tree.files.flatMap((file) => wrongWords(file.path, tree, replaced))];
}

/** The words of the section "Words": each one in backticks that starts a definition. */
function missingWords(tree: Tree, known: ReadonlySet<string>): Problem[] {
  const section = /^## Words$([\s\S]*?)^Keep/m.exec(tree.get(ARCHITECTURE)?.text ?? "")?.[1] ?? "";
  return [...section.matchAll(/`([\w-]+)`/g)]
    .map((match) => match[1] ?? "")
    .filter((word) => !known.has(word))
    .map((word) => ({ path: GLOSSARY, line: 1, rule: "glossary", message: `${word} is not explained` }));
}

function wrongWords(
  path: string,
  tree: Tree,
  replaced: readonly { readonly wrong: string; readonly right: string }[],
): Problem[] {
  const file = tree.get(path);
  if (file === undefined || !path.endsWith(".md") || path === GLOSSARY) return [];
  return proseLines(file).flatMap((line, index) =>
    replaced
      .filter(({ wrong }) => new RegExp(`(?<![\\w-])${wrong}s?(?![\\w-])`, "i").test(line))
      .map(({ wrong, right }) => ({ path, line: index + 1, rule: "glossary", message: `say ${right}, not ${wrong}` })),
  );
}

function listOf(cell: string | undefined): string[] {
  return (cell ?? "")
    .split(",")
    .map(unquote)
    .filter((word) => word !== "");
}

function unquote(text: string | undefined): string {
  return (text ?? "").trim().replaceAll("`", "");
}
