import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";

/** One archive that apt of this host uses. */
export interface AptSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** File with the archive's keys; `undefined` when apt's own trusted keys serve, or the keys stand in the source itself. */
  readonly signedBy: string | undefined;
}

/** A release and the archives that have its packages, in the one-line format of apt. */
export interface SuiteSources {
  readonly suite: string;
  readonly lines: readonly string[];
}

const SUITE = /^[a-z][a-z0-9.-]{0,63}$/;
const PACKAGE = /^[a-z0-9][a-z0-9+.-]*(:[a-z0-9-]+)?$/;

/**
 * The archives of this host's apt for a suite, its own release unless given, and for these packages. `InvalidArgument` for an impossible
 * name, `FailedPrecondition` on a host whose apt names no archive of its release.
 */
export function suiteSources(wanted: string | undefined, packages: readonly string[]): SuiteSources {
  const host = hostSuite();
  const suite = wanted ?? host;
  if (suite === undefined) throw invalid("this host does not say which Debian or Ubuntu release it is", "name a suite");
  if (!SUITE.test(suite)) throw invalid(`${shown(suite)} is not the name of a suite`, "for example bookworm");
  const odd = packages.find((name) => !PACKAGE.test(name));
  if (odd !== undefined) throw invalid(`${shown(odd)} is not the name of a package`, "for example python3");
  const lines = sourcesOf(suite, host, aptSources()).map(sourceLine);
  if (lines.length > 0) return { suite, lines };
  throw new SandboxError("FailedPrecondition", "apt of this host names no archive of its own release", {
    hint: "packages come from the archives in /etc/apt of a Debian or Ubuntu host",
  });
}

/** The release of this host in apt's words: `bookworm`, `noble`; `undefined` where os-release has none. */
export function hostSuite(file = "/etc/os-release"): string | undefined {
  return /^VERSION_CODENAME=["']?([a-z0-9.-]+)["']?$/m.exec(readText(file))?.[1];
}

/** Every binary archive in apt's configuration, both formats, in apt's order of reading. */
export function aptSources(directory = "/etc/apt"): readonly AptSource[] {
  const parts = join(directory, "sources.list.d");
  const names = listNames(parts).sort();
  return [
    ...oneLineSources(readText(join(directory, "sources.list"))),
    ...names.flatMap((name) => {
      if (name.endsWith(".list")) return oneLineSources(readText(join(parts, name)));
      return name.endsWith(".sources") ? deb822Sources(readText(join(parts, name))) : [];
    }),
  ];
}

/**
 * The archives to build `suite` from: the host's own for its own suite with updates and security; for another suite of the
 * same distribution the same servers. Empty when the host names no archive of its own release.
 */
export function sourcesOf(
  suite: string,
  host: string | undefined,
  sources: readonly AptSource[],
): readonly AptSource[] {
  if (host === undefined) return [];
  // The rolling suites have neither updates nor security of their own.
  const pockets = /^(sid|unstable|experimental)$/.test(suite) ? [""] : ["", "-updates", "-security"];
  const found = pockets.flatMap((pocket) =>
    sources
      .filter((source) => source.suite === `${host}${pocket}`)
      .map((source) => ({ ...source, suite: `${suite}${pocket}` })),
  );
  return found.filter(
    (source, index) => found.findIndex((other) => sourceLine(other) === sourceLine(source)) === index,
  );
}

/** The source in the one-line format. */
export function sourceLine({ uri, suite, components, signedBy }: AptSource): string {
  const options = signedBy === undefined ? "" : `[signed-by=${signedBy}] `;
  return `deb ${options}${uri} ${suite} ${components.join(" ")}`.trimEnd();
}

function oneLineSources(text: string): AptSource[] {
  return text.split("\n").flatMap((line) => {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+[^#\s]+)*)/.exec(line);
    if (match === null) return [];
    const signedBy = /(?:^|\s)signed-by=(\/\S+)/i.exec(match[1] ?? "")?.[1];
    return [{ uri: match[2] ?? "", suite: match[3] ?? "", components: words(match[4]), signedBy }];
  });
}

function deb822Sources(text: string): AptSource[] {
  return text.split(/\n\s*\n/).flatMap((stanza) => {
    const field = (name: string): string | undefined =>
      new RegExp(`^${name}:[ \\t]*(.*)$`, "im").exec(stanza)?.[1]?.trim();
    if (!words(field("Types")).includes("deb") || /^no$/i.test(field("Enabled") ?? "")) return [];
    const signedBy = field("Signed-By");
    return words(field("URIs")).flatMap((uri) =>
      words(field("Suites")).map((suite) => ({
        uri,
        suite,
        components: words(field("Components")),
        signedBy: signedBy?.startsWith("/") === true ? signedBy : undefined,
      })),
    );
  });
}

function words(text: string | undefined): string[] {
  return (text ?? "").split(/\s+/).filter((word) => word !== "");
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "";
    throw error;
  }
}

function listNames(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 80));
}

function invalid(message: string, hint: string): SandboxError {
  return new SandboxError("InvalidArgument", message, { hint });
}
