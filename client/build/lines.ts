import { refused } from "./refused.ts";

/** What stands in the file between `<<NAME` and a line with that name alone. */
export interface HereDocument {
  readonly name: string;
  /** Its lines, each with its end; without leading tabs after `<<-`. */
  readonly text: string;
  /** False for a quoted name: variables are not put in. */
  readonly expands: boolean;
}

/** An instruction with its continuation lines joined, and the here-documents after it. */
export interface LogicalLine {
  /** Of its first line, counted from 1. */
  readonly line: number;
  readonly text: string;
  readonly documents: readonly HereDocument[];
}

/** Instructions that here-documents may follow. */
const TAKES_DOCUMENTS = /^\s*(?:RUN|COPY|ADD)\s/i;
/** A mark, or else what hides one: quoted text, an escaped character, a here-string. */
const MARKS = /<<<|<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_.-]*)\2|'[^']*'|"(?:\\.|[^"\\])*"|\\[\s\S]/g;

/** The instructions of a file; comments and empty lines left out. Throws `InvalidArgument` for a here-document without an end. */
export function logicalLines(lines: readonly string[], escapeMark: string): readonly LogicalLine[] {
  const found: LogicalLine[] = [];
  let open: { readonly line: number; readonly text: string } | undefined;
  for (let index = 0; index < lines.length; index++) {
    const raw = lines[index] ?? "";
    // Comments and empty lines within an instruction are no part of it.
    if (/^\s*(#.*)?$/.test(raw)) continue;
    const text = raw.trimEnd();
    const continues = text.endsWith(escapeMark);
    const piece = continues ? text.slice(0, -1) : text;
    open = open === undefined ? { line: index + 1, text: piece } : { line: open.line, text: open.text + piece };
    if (continues) continue;
    const { documents, next } = documentsAfter(open, lines, index + 1);
    found.push({ ...open, documents });
    open = undefined;
    index = next - 1;
  }
  if (open !== undefined) found.push({ ...open, documents: [] });
  return found;
}

function documentsAfter(
  { line, text }: { readonly line: number; readonly text: string },
  lines: readonly string[],
  from: number,
) {
  const documents: HereDocument[] = [];
  let next = from;
  if (!TAKES_DOCUMENTS.test(text)) return { documents, next };
  for (const [whole, dash, quote, name] of text.matchAll(MARKS)) {
    if (!whole.startsWith("<<") || name === undefined) continue;
    const body = lines.slice(next).map((each) => (dash === "-" ? each.replace(/^\t+/, "") : each));
    const end = body.indexOf(name);
    if (end < 0) throw refused(line, `the here-document ${name} has no end`);
    documents.push({
      name,
      expands: quote === "",
      text: body
        .slice(0, end)
        .map((each) => `${each}\n`)
        .join(""),
    });
    next += end + 1;
  }
  return { documents, next };
}
