/** A line of a `.dockerignore`. */
export interface IgnoreRule {
  readonly pattern: RegExp;
  /** True for a line with `!`: what it matches is taken after all. */
  readonly isException: boolean;
}

/** The lines of a `.dockerignore` in order; comments and empty ones left out. */
export function ignoreRules(text: string): readonly IgnoreRule[] {
  return text.split(/\r?\n/).flatMap((raw) => {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) return [];
    const isException = line.startsWith("!");
    const path = (isException ? line.slice(1).trim() : line).replace(/^(\.?\/)+/, "").replace(/\/+$/, "");
    return path === "" ? [] : [{ pattern: globToRegExp(path), isException }];
  });
}

/** The last rule that matches the path, or a directory above it, decides. */
export function isIgnored(path: string, rules: readonly IgnoreRule[]): boolean {
  const parts = path.split("/");
  const above = parts.map((_, index) => parts.slice(0, index + 1).join("/"));
  let ignored = false;
  for (const { pattern, isException } of rules) if (above.some((each) => pattern.test(each))) ignored = !isException;
  return ignored;
}

/** `*` and `?` within a name, `**` over any names. */
export function globToRegExp(glob: string): RegExp {
  const source = glob.replace(/\*\*\/|\*\*|\*|\?|[\\^$.|+()[\]{}]/g, (token) => {
    if (token === "**/") return "(?:.*/)?";
    if (token === "**") return ".*";
    if (token === "*") return "[^/]*";
    return token === "?" ? "[^/]" : `\\${token}`;
  });
  return new RegExp(`^${source}$`);
}
