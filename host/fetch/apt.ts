import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { suiteSources } from "../debian-sources.ts";
import { type ConfinedOptions, runConfined } from "./confined.ts";
import { type Failures, programFailure } from "./failures.ts";

/** Packages by name, and where to put them. */
export interface PackageOptions extends Omit<ConfinedOptions, "words" | "package" | "env"> {
  readonly packages: readonly string[];
  /** Default: the release of this host. */
  readonly suite?: string | undefined;
  /** As Debian names processors. */
  readonly architecture: string;
  /** Hears each step. */
  readonly progress: (line: string) => void;
}

/** One version of a package. */
export interface PackageVersion {
  readonly name: string;
  readonly version: string;
}

/** Packages that were fetched. */
export interface FetchedPackages {
  readonly suite: string;
  /** Those that were asked for come with the ones that they need. */
  readonly packages: readonly (PackageVersion & { readonly file: string })[];
}

/** Addresses of some thousands of packages. */
const MAX_OUTPUT_BYTES = 16 * 2 ** 20;
/** What every system has, as `mmdebstrap --variant=minbase` makes it: nobody has to bring it. */
const MINIMAL = ["?essential", "apt"];

/**
 * Fetches packages into `dir` with all that they depend on and a minimal system lacks, from the archives that apt of this host
 * uses; apt verifies each of them. Errors: as `suiteSources`'s, `InvalidArgument` for a package or suite that the archive does not have,
 * `FailedPrecondition` for packages that exclude each other, `Unavailable`, `StorageFull`.
 */
export async function fetchPackages(options: PackageOptions): Promise<FetchedPackages> {
  const { dir, packages, progress } = options;
  const { suite, lines } = suiteSources(options.suite, packages);
  await configure(options, lines);
  progress(`looking at the packages of ${suite}`);
  await apt(options, ["update", "--error-on=any"], `reading the lists of ${suite}`);
  const minimal = new Set((await closure(options, MINIMAL)).map(({ file }) => file));
  const wanted = (await closure(options, packages)).filter(({ file }) => !minimal.has(file));
  if (wanted.length === 0) {
    throw new SandboxError("InvalidArgument", `every system has ${packages.join(", ")}`, {
      hint: "name packages that a minimal system lacks",
    });
  }
  progress(`fetching ${wanted.length} packages`);
  const names = wanted.map(({ name, version }) => `${name}=${version}`);
  await apt(options, ["download", ...names], "fetching packages");
  return { suite, packages: wanted.map(({ file, ...each }) => ({ ...each, file: join(dir, file) })) };
}

/** What would be installed on an empty system, without what is only recommended. */
async function closure(options: PackageOptions, names: readonly string[]) {
  const words = ["install", "--print-uris", "--no-install-recommends", "--no-remove", "-y", "--", ...names];
  const printed = await apt(options, words, `resolving ${names.join(", ")}`);
  return [...printed.matchAll(/^'\S+' (([^_\s]+)_([^_\s]+)_[^_\s]+\.deb) /gm)].map(
    ([, file = "", name = "", version = ""]) => ({
      ...{ file, name },
      version: decodeURIComponent(version),
    }),
  );
}

async function apt(options: PackageOptions, call: readonly string[], doing: string): Promise<string> {
  const env = { APT_CONFIG: join(options.dir, "apt.conf"), DEBIAN_FRONTEND: "noninteractive" };
  const words: ConfinedOptions = { ...options, words: ["apt-get", "-qq", ...call], package: "apt", env };
  const end = await runConfined(words, MAX_OUTPUT_BYTES);
  if (end.code !== 0) throw programFailure(doing, end, FAILURES);
  return end.output.toString("utf8");
}

/**
 * A world of its own for apt: lists, cache and an empty system below `dir`. Of this host it has the keys, credentials for archives and the ways to
 * reach them, and none of the programs that its settings would have run.
 */
async function configure(options: PackageOptions, lines: readonly string[]): Promise<void> {
  const { architecture, dir } = options;
  for (const name of ["etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"]) {
    await mkdir(join(dir, name), { recursive: true });
  }
  await writeFile(join(dir, "etc/apt/sources.list"), `${lines.join("\n")}\n`);
  await writeFile(join(dir, "status"), "");
  const settings = [
    ...(await acquireSettings(options)),
    ...[setting("Dir", `${dir}/`), setting("Dir::State::status", join(dir, "status"))],
    ...[setting("Dir::Etc::main", "/dev/null"), setting("Dir::Etc::parts", "/dev/null")],
    ...[
      setting("Dir::Etc::trusted", "/etc/apt/trusted.gpg"),
      setting("Dir::Etc::trustedparts", "/etc/apt/trusted.gpg.d"),
    ],
    ...[setting("Dir::Etc::netrc", "/etc/apt/auth.conf"), setting("Dir::Etc::netrcparts", "/etc/apt/auth.conf.d")],
    ...[setting("APT::Architecture", architecture), `APT::Architectures { "${architecture}"; };`],
    ...[setting("Dir::Etc::preferences", "/dev/null"), setting("Dir::Etc::preferencesparts", "/dev/null")],
    // It has no powers to give up, and needs none.
    setting("APT::Sandbox::User", "root"),
    ...[setting("Acquire::Languages", "none"), setting("Acquire::Retries", "2")],
  ];
  await writeFile(join(dir, "apt.conf"), `${settings.join("\n")}\n`);
}

/** Proxies, time limits and the like of this host. */
async function acquireSettings(options: PackageOptions): Promise<readonly string[]> {
  const words = ["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n'] as const;
  const end = await runConfined({ ...options, words, package: "apt" }, MAX_OUTPUT_BYTES);
  if (end.code !== 0) throw programFailure("reading the settings of apt", end, FAILURES);
  const lines = end.output.toString("utf8").split("\n");
  return lines.filter((line) => /^Acquire::(?!Languages|Retries)/.test(line));
}

function setting(name: string, value: string): string {
  return `${name} "${value}";`;
}

const FAILURES: Failures = [
  [
    /unable to locate package|has no installation candidate|couldn't find any package|can't find a source to download|version .* was not found/i,
    "InvalidArgument",
    "check the names of the packages, and the suite",
  ],
  [
    /404\s+not found|does not have a release file|no longer has a release file/i,
    "InvalidArgument",
    "name a release of the host's own distribution",
  ],
  [
    /unmet dependencies|held broken packages|remove is disabled|unable to correct problems/i,
    "FailedPrecondition",
    "import them one by one, as toolkits of their own",
  ],
  [
    /signatures? (couldn't be verified|were invalid)|not signed|hash sum mismatch|NO_PUBKEY/i,
    "FailedPrecondition",
    "check that apt-get update works on this host",
  ],
  [
    /temporary failure resolving|could not (connect|resolve)|connection (failed|timed out|refused)|failed to fetch|network is unreachable/i,
    "Unavailable",
    "check that apt-get update works on this host",
  ],
];
