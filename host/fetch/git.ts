import type { Readable } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import { type ConfinedOptions, runConfined, startConfined } from "./confined.ts";
import { type Failures, programFailure } from "./failures.ts";
import type { Credentials } from "./skopeo.ts";

/** One revision of a repository that nobody trusts. */
export interface GitOptions extends Omit<ConfinedOptions, "words" | "package" | "env"> {
  readonly url: string;
  readonly revision?: string | undefined;
  readonly credentials?: Credentials | undefined;
}

/** The files of a commit. Disposing ends what still runs. */
export interface GitTree extends AsyncDisposable {
  /** Its id. */
  readonly commit: string;
  /** A tar archive; ends early when git fails: `finished` says so. */
  readonly tar: Readable;
  readonly finished: Promise<void>;
}

/** Branch, tag or id: nothing that git would take for an option, a range or a path. */
const REVISION = /^(?!.*(?:\.\.|@\{|\/\/))[A-Za-z0-9_][A-Za-z0-9._/+-]{0,254}$/;
const URL_PROTOCOLS = ["https:", "http:", "git:"];
const MAX_URL_LENGTH = 2048;
const MAX_OUTPUT_BYTES = 64 * 1024;

/**
 * What git is told whatever a repository or this host says: nothing of theirs runs, nobody is asked, a server that stands still is
 * given up, and blobs of any size pass in pieces.
 */
const CONFIG: readonly (readonly [name: string, value: string])[] = [
  ["core.hooksPath", "/dev/null"],
  ["core.attributesFile", "/dev/null"],
  ["core.bigFileThreshold", "16m"],
  ["credential.helper", ""],
  ["gpg.program", "/bin/false"],
  ["gpg.ssh.program", "/bin/false"],
  ["gpg.x509.program", "/bin/false"],
  ["http.lowSpeedLimit", "1000"],
  ["http.lowSpeedTime", "60"],
  ["tar.umask", "0022"],
];

/** Throws `InvalidArgument` for what git is not to be asked. */
function checkGitSource(url: string, revision: string | undefined): void {
  const parsed = url.length <= MAX_URL_LENGTH && URL.canParse(url) ? new URL(url) : undefined;
  if (
    parsed === undefined ||
    !URL_PROTOCOLS.includes(parsed.protocol) ||
    parsed.hostname === "" ||
    /[\s\p{Cc}]/u.test(url)
  ) {
    throw invalid(
      "the address is no git repository that a node fetches",
      "https://, http:// or git://, and no local path",
    );
  }
  if (parsed.username !== "" || parsed.password !== "")
    throw invalid("the address holds credentials", "give them apart, so that they appear nowhere");
  if (revision !== undefined && !REVISION.test(revision)) {
    throw invalid(
      `${JSON.stringify(revision.slice(0, 80))} is not a branch, a tag or the id of a commit`,
      "give the whole id of a commit",
    );
  }
}

/**
 * Fetches one commit without its history into `dir` and starts to read its files, submodules left out. Errors as
 * `checkGitSource`'s, `NotFound`, `PermissionDenied`, `Unavailable`, `TooLarge` past `maxFileBytes`, `StorageFull`.
 */
export async function openGitTree(options: GitOptions): Promise<GitTree> {
  const { url, revision = "HEAD" } = options;
  checkGitSource(url, options.revision);
  await git(options, ["init", "--bare", "--quiet", "--template=", "."], "preparing");
  const fetch = ["fetch", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph", "--progress"];
  await git(options, [...fetch, "--", url, revision], `fetching ${revision} of ${url}`);
  const commit = await git(options, ["rev-parse", "--verify", "FETCH_HEAD^{commit}"], "reading the commit");
  const archive = startConfined(words(options, ["archive", "--format=tar", commit]));
  const finished = archive.ended.then((end) => {
    if (end.code !== 0) throw programFailure(`reading ${commit}`, end, FAILURES);
  });
  finished.catch(() => undefined);
  // Without a reader Node throws away what a program that has ended left in the pipe; our caller may begin to read later.
  archive.stdout.on("readable", () => undefined);
  return { commit, tar: archive.stdout, finished, [Symbol.asyncDispose]: () => archive[Symbol.asyncDispose]() };
}

async function git(options: GitOptions, call: readonly string[], doing: string): Promise<string> {
  const end = await runConfined(words(options, call), MAX_OUTPUT_BYTES);
  if (end.code !== 0) throw programFailure(doing, end, FAILURES);
  return end.output.toString("utf8").trim();
}

function words(options: GitOptions, call: readonly string[]): ConfinedOptions {
  const config = [...CONFIG, ...accessConfig(options)];
  const env: Record<string, string> = {
    GIT_DIR: ".",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ASKPASS: "/bin/false",
    GIT_ALLOW_PROTOCOL: "https:http:git",
    GIT_CONFIG_COUNT: String(config.length),
  };
  for (const [index, [name, value]] of config.entries()) {
    env[`GIT_CONFIG_KEY_${index}`] = name;
    env[`GIT_CONFIG_VALUE_${index}`] = value;
  }
  return { ...options, words: ["git", ...call], package: "git", env };
}

/** Credentials go to the server that was named and to no other: a redirection would take them along. */
function accessConfig({ credentials }: GitOptions): readonly (readonly [string, string])[] {
  if (credentials === undefined) return [];
  const basic = Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64");
  return [
    ["http.extraHeader", `Authorization: Basic ${basic}`],
    ["http.followRedirects", "false"],
  ];
}

const FAILURES: Failures = [
  [
    /couldn't find remote ref|not our ref|unadvertised object/i,
    "NotFound",
    "give a branch, a tag, or the whole id of a commit that the server hands out",
  ],
  [
    /repository .*not found|does not appear to be a git repository|access denied or repository not exported|error: 404/i,
    "NotFound",
    "check the address",
  ],
  [
    /authentication failed|could not read (username|password)|error: 40[13]/i,
    "PermissionDenied",
    "give credentials for the repository",
  ],
  [/certificate|SSL/i, "FailedPrecondition", "make the node trust the server's certificate"],
  [
    /could not resolve|failed to connect|connection (refused|reset)|unable to connect|timed out|early EOF|hung up|too slow|error: 5\d\d/i,
    "Unavailable",
    "check that the node reaches the server, and try again",
  ],
  [
    /bad object|corrupt|inflate|invalid|fsck|index-pack failed|bad (pack|band)/i,
    "InvalidArgument",
    "the repository is damaged",
  ],
];

function invalid(message: string, hint: string): SandboxError {
  return new SandboxError("InvalidArgument", message, { hint });
}
