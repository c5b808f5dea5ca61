import { SandboxError } from "#core/errors.ts";
import type { ByteString } from "#core/tar/entry.ts";

/** Names of a path, first to last. */
export type Names = readonly ByteString[];

/** Bound what matching one name costs: of each pattern, and of all of a matcher. */
const MAX_PATTERN_BYTES = 1_024;
const MAX_BYTES = 16 * 1_024;

/** Places in a pattern at which what follows of a path may go on; behind its last part, the path matches. */
type Places = readonly number[];

/**
 * A test for paths, by glob patterns: `*` stands for any bytes of one name, `?` for one, `**` for any number of names. A pattern
 * without a `/` names what it matches wherever that lies; any other begins at the root. What the names above led to is kept for the
 * next path: in a walk, time is bounded by the length of a name times that of the patterns, however deep it lies. Throws
 * `InvalidArgument` for a pattern that can match nothing, and for too many.
 */
export function pathMatcher(patterns: readonly string[]): (names: Names) => boolean {
  const parsed = patterns.map(parse);
  if (parsed.flat().reduce((sum, part) => sum + part.length, 0) > MAX_BYTES) {
    throw invalid("the patterns are too long together", `give at most ${MAX_BYTES} bytes of them`);
  }
  const way = new Way(parsed);
  // Most paths are told by their last name alone.
  const byName = Map.groupBy(parsed.keys(), (index) => plainEnd(parsed[index] ?? []));
  const others = byName.get(undefined) ?? [];
  return (names) => {
    const name = names.at(-1);
    if (name === undefined) return false;
    const above = way.above(names);
    const isMatch = (index: number) => {
      const pattern = parsed[index] ?? [];
      return step(pattern, above[index] ?? [], name).includes(pattern.length);
    };
    return (byName.get(name) ?? []).some(isMatch) || others.some(isMatch);
  };
}

/** The directories above the path that was asked for last, and the places of all patterns behind each. */
class Way {
  readonly #patterns: readonly Names[];
  readonly #start: readonly Places[];
  readonly #levels: { readonly name: ByteString; readonly places: readonly Places[] }[] = [];

  constructor(patterns: readonly Names[]) {
    this.#patterns = patterns;
    this.#start = patterns.map((pattern) => opened(pattern, [0]));
  }

  above(names: Names): readonly Places[] {
    const depth = names.length - 1;
    let known = 0;
    while (known < Math.min(depth, this.#levels.length) && this.#levels[known]?.name === names[known]) known += 1;
    this.#levels.length = known;
    for (const name of names.slice(known, depth)) {
      const before = this.#levels.at(-1)?.places ?? this.#start;
      const places = this.#patterns.map((pattern, index) => step(pattern, before[index] ?? [], name));
      this.#levels.push({ name, places });
    }
    return this.#levels.at(-1)?.places ?? this.#start;
  }
}

/** Where a name leads to from these places. */
function step(pattern: Names, places: Places, name: ByteString): Places {
  const next = places.flatMap((at) => {
    const part = pattern[at];
    if (part === "**") return [at];
    return part !== undefined && nameMatches(part, name) ? [at + 1] : [];
  });
  return opened(pattern, next);
}

/** With the places that `**` leads to by standing for nothing, each once. */
function opened(pattern: Names, places: Places): Places {
  const all = new Set(places);
  // A Set goes on to what is added while it is walked.
  for (const at of all) if (pattern[at] === "**") all.add(at + 1);
  return [...all];
}

function parse(text: string): Names {
  const bytes = Buffer.from(text).toString("latin1");
  const parts = bytes.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.length === 0 || parts.includes("..") || bytes.includes("\0") || bytes.length > MAX_PATTERN_BYTES) {
    throw invalid(
      `the pattern ${JSON.stringify(text)} can match no path`,
      "give a name, or a path below / of at most 1,024 bytes; * and ** and ? are wildcards",
    );
  }
  return bytes.replace(/\/+$/, "").includes("/") ? parts : ["**", ...parts];
}

/** The name that a path must end with, when there is one. */
function plainEnd(pattern: Names): ByteString | undefined {
  const last = pattern.at(-1);
  return last !== undefined && isPlain(last) ? last : undefined;
}

function isPlain(part: ByteString): boolean {
  return !/[*?]/.test(part);
}

/** Only the last wildcard is ever gone back to: a longer run of an earlier one could not help. */
function nameMatches(part: ByteString, name: ByteString): boolean {
  if (part === name) return true;
  let at = 0;
  let [afterAny, resumeAt] = [-1, 0];
  for (let index = 0; index < name.length; ) {
    const one = part[at];
    if (one === "*") {
      at += 1;
      [afterAny, resumeAt] = [at, index];
    } else if (one !== undefined && (one === "?" || one === name[index])) {
      at += 1;
      index += 1;
    } else if (afterAny >= 0) {
      resumeAt += 1;
      [at, index] = [afterAny, resumeAt];
    } else return false;
  }
  return /^\**$/.test(part.slice(at));
}

function invalid(message: string, hint: string): SandboxError {
  return new SandboxError("InvalidArgument", message, { hint, details: { field: "exclude" } });
}
