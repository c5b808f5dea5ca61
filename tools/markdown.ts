import type { SourceFile } from "./tree.ts";

/** A link of a page, without its title. */
export interface Link {
  readonly target: string;
  readonly line: number;
}

/** Lines of a page as people read them: fenced and indented code is blank, so are HTML comments. */
export function proseLines(file: SourceFile): readonly string[] {
  let isFenced = false;
  const text = file.text.replaceAll(/<!--[\s\S]*?-->/g, (comment) => comment.replaceAll(/[^\n]/g, " "));
  return text.split("\n").map((line, index, lines) => {
    const isFence = /^\s*(```|~~~)/.test(line);
    if (isFence) isFenced = !isFenced;
    const isIndented = /^ {4}\S/.test(line) && /^(\s*| {4}.*)$/.test(lines[index - 1] ?? "");
    return isFence || isFenced || isIndented ? "" : line;
  });
}

/** Links and images of a page, those in code left out. */
export function linksOf(file: SourceFile): readonly Link[] {
  return proseLines(file).flatMap((line, index) =>
    [
      ...line
        .replaceAll(/`[^`]*`/g, (code) => "`".padEnd(code.length, " "))
        .matchAll(/\]\(([^)\s]+)(?:\s+"[^"]*")?\)/g),
    ].map((match) => ({ target: match[1] ?? "", line: index + 1 })),
  );
}

/** The anchors that a page's headings make, by the rule of the common code hosts. */
export function anchorsOf(file: SourceFile): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const line of proseLines(file)) {
    const heading = /^#{1,6}\s+(.*?)\s*#*$/.exec(line)?.[1];
    if (heading === undefined) continue;
    const slug = heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(/\s/g, "-");
    let unique = slug;
    for (let count = 1; anchors.has(unique); count++) unique = `${slug}-${count}`;
    anchors.add(unique);
  }
  return anchors;
}

/** Rows of every table of a page: trimmed cells, head and ruler left out. */
export function tableRows(file: SourceFile): readonly { readonly cells: readonly string[]; readonly line: number }[] {
  const lines = proseLines(file);
  return lines.flatMap((line, index) => {
    const isHead = /^\|[\s:|-]+\|$/.test(lines[index + 1] ?? "");
    if (!line.startsWith("|") || isHead || /^\|[\s:|-]+\|$/.test(line)) return [];
    const cells = line.split(/(?<!\\)\|/).slice(1, -1);
    return [{ cells: cells.map((cell) => cell.trim()), line: index + 1 }];
  });
}
