/** Names and values that `$NAME` stands for. */
export type Variables = Readonly<Record<string, string>>;

/**
 * Words of a line as a shell would split and unquote them, variables put in: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:+other}`; none
 * in single quotes. Unknown names are empty. Throws a plain `Error` for an open quote or brace.
 */
export function expandWords(text: string, variables: Variables, escapeMark: string): readonly string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote: string | undefined;
  for (let at = 0; at < text.length; ) {
    const character = text[at] ?? "";
    if (quote === undefined && /\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      at++;
    } else if (quote === undefined ? character === '"' || character === "'" : character === quote) {
      quote = quote === undefined ? character : undefined;
      word ??= "";
      at++;
    } else if (character === escapeMark && quote !== "'" && at + 1 < text.length) {
      word = (word ?? "") + text[at + 1];
      at += 2;
    } else if (character === "$" && quote !== "'") {
      const { value, length } = variableAt(text.slice(at), variables, escapeMark);
      word = (word ?? "") + value;
      at += length;
    } else {
      word = (word ?? "") + character;
      at++;
    }
  }
  if (quote !== undefined) throw new Error("a quote is not closed");
  if (word !== undefined) words.push(word);
  return words;
}

/** A line as one text, variables put in and quotes gone. */
export function expandText(text: string, variables: Variables, escapeMark: string): string {
  return expandWords(text, variables, escapeMark).join(" ");
}

/** The text of a here-document with variables put in. Quotes are characters of it; the escape mark only takes the meaning from a `$` and from itself. */
export function expandBody(text: string, variables: Variables, escapeMark: string): string {
  let expanded = "";
  for (let at = 0; at < text.length; ) {
    const character = text[at] ?? "";
    const next = text[at + 1];
    if (character === escapeMark && (next === "$" || next === escapeMark)) {
      expanded += next;
      at += 2;
    } else if (character === "$") {
      const { value, length } = variableAt(text.slice(at), variables, escapeMark);
      expanded += value;
      at += length;
    } else {
      expanded += character;
      at++;
    }
  }
  return expanded;
}

function variableAt(
  text: string,
  variables: Variables,
  escapeMark: string,
): { readonly value: string; readonly length: number } {
  const plain = /^\$([A-Za-z_]\w*)/.exec(text);
  if (plain !== null) return { value: variables[plain[1] ?? ""] ?? "", length: plain[0].length };
  if (!text.startsWith("${")) return { value: "$", length: 1 };
  const match = /^\$\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\}/.exec(text);
  if (match === null) throw new Error("braces of a variable hold more than a name and :- or :+");
  const [whole, name = "", operator, operand = ""] = match;
  const value = variables[name] ?? "";
  const other = () => expandText(operand, variables, escapeMark);
  if (operator === "-") return { value: value === "" ? other() : value, length: whole.length };
  if (operator === "+") return { value: value === "" ? "" : other(), length: whole.length };
  return { value, length: whole.length };
}

/** `NAME=value` pairs of a line; `NAME value` is one pair. Throws a plain `Error` for anything else. */
export function expandPairs(
  text: string,
  variables: Variables,
  escapeMark: string,
): readonly (readonly [string, string])[] {
  const old = /^([^\s=]+)\s+([\s\S]+)$/.exec(text);
  if (old !== null) return [[old[1] ?? "", expandText(old[2] ?? "", variables, escapeMark)]];
  return expandWords(text, variables, escapeMark).map((word) => {
    const equals = word.indexOf("=");
    if (equals <= 0) throw new Error(`${JSON.stringify(word)} is not NAME=VALUE`);
    return [word.slice(0, equals), word.slice(equals + 1)] as const;
  });
}
