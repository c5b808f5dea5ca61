import { SandboxError } from "#core/errors.ts";
import type { ByteString } from "#core/tar/entry.ts";

/** Names of a path, first to last. */
export type Names = readonly ByteString[];

/** Bounds what matching one path costs. */
const MAX_PATTERN_BYTES = 1_024;

/**
 * A test for paths, by glob patterns: `*` stands for any bytes of one name, `?` for one, `**` for any number of names. A pattern
 * without a `/` names what it matches wherever that lies; any other begins at the root. Time is bounded by the length of the
 * path times that of the pattern, whatever they are. Throws `InvalidArgument` for a pattern that can match nothing.
 */
export function pathMatcher(patterns: readonly string[]): (names: Names) => boolean {
  const parsed = patterns.map(parse);
  // Most paths are told by their last name alone.
  const byName = Map.groupBy(parsed, (pattern) => (isPlain(pattern.at(-1)) ? pattern.at(-1) : undefined));
  const others = byName.get(undefined) ?? [];
  return (names) => {
    const candidates = byName.get(names.at(-1)) ?? [];
    return (
      names.length > 0 && (candidates.some((one) => matches(one, names)) || others.some((one) => matches(one, names)))
    );
  };
}

function parse(text: string): Names {
  const bytes = Buffer.from(text).toString("latin1");
  const parts = bytes.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.length === 0 || parts.includes("..") || bytes.includes("\0") || bytes.length > MAX_PATTERN_BYTES) {
    throw new SandboxError("InvalidArgument", `the pattern ${JSON.stringify(text)} can match no path`, {
      hint: "give a name, or a path below / of at most 1,024 bytes; * and ** and ? are wildcards",
      details: { field: "exclude" },
    });
  }
  return bytes.replace(/\/+$/, "").includes("/") ? parts : ["**", ...parts];
}

function isPlain(part: ByteString | undefined): boolean {
  return part !== undefined && !/[*?]/.test(part);
}

function matches(pattern: Names, names: Names): boolean {
  return wildcardMatch(pattern, names, (part) => part === "**", nameMatches);
}

function nameMatches(part: ByteString, name: ByteString): boolean {
  if (isPlain(part)) return part === name;
  return wildcardMatch(
    part,
    name,
    (one) => one === "*",
    (one, other) => one === "?" || one === other,
  );
}

/** Only the last wildcard is ever gone back to: a longer run of an earlier one could not help. */
function wildcardMatch(
  pattern: ArrayLike<string>,
  items: ArrayLike<string>,
  isAny: (part: string) => boolean,
  isOne: (part: string, item: string) => boolean,
): boolean {
  let at = 0;
  let [afterAny, resumeAt] = [-1, 0];
  for (let index = 0; index < items.length; ) {
    const [part, item] = [pattern[at], items[index]];
    if (part !== undefined && isAny(part)) {
      at += 1;
      [afterAny, resumeAt] = [at, index];
    } else if (part !== undefined && item !== undefined && isOne(part, item)) {
      at += 1;
      index += 1;
    } else if (afterAny >= 0) {
      resumeAt += 1;
      [at, index] = [afterAny, resumeAt];
    } else return false;
  }
  return Array.from(pattern).slice(at).every(isAny);
}
