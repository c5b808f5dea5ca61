import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  createReadStream,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import type { Client } from "#sdk";
import { madeOnce } from "./made-once.ts";

const exec = promisify(execFile);
const OUTPUT_BYTES = 64 * 1024 * 1024;

const FOLDER = join(import.meta.dirname, "../../.build/debian");
const DAY_MS = 86_400_000;
const LIMIT_MS = 10 * 60_000;

/**
 * What tests need of Debian that are not about making one. `tools`: ping has a file capability; the users of man-db and at have
 * directories, links and set-group-ID programs of all kinds; the rest is what suites of real projects are built and run with.
 */
const SETS = {
  plain: ["python3", "procps"],
  tools: ["gcc", "make", "libc6-dev", "python3-pytest", "iputils-ping", "libcap2-bin", "man-db", "at"],
} as const;

/** The tests want a file with a capability, and not every release has one. */
const HOOKS = { plain: [], tools: ['--customize-hook=chroot "$1" setcap cap_net_raw+ep /bin/ping'] } as const;

/** Why sources and packages of Debian cannot be had here; undefined when they can. */
export function whyNoDebian(): string | undefined {
  for (const program of ["/usr/bin/apt-get", "/usr/bin/mmdebstrap"]) {
    if (!existsSync(program)) return `${program} is missing`;
  }
  return aptSources().length === 0 ? "no apt sources on this host" : undefined;
}

/**
 * Unpacks the upstream sources of a Debian source package into `target`; false when the archive names them and has them not, as mirrors
 * do. The host's own apt lists stay as they are.
 */
export async function fetchSource(name: string, scratch: string, target: string): Promise<boolean> {
  const apt = join(scratch, "apt");
  for (const folder of ["sources.d", "lists/partial", "archives/partial", "downloads"]) {
    mkdirSync(join(apt, folder), { recursive: true });
  }
  writePrivateSources(join(apt, "sources.d"));
  const options = [
    "Dir::Etc::sourcelist=/dev/null",
    `Dir::Etc::sourceparts=${apt}/sources.d`,
    `Dir::State::lists=${apt}/lists`,
    `Dir::Cache=${apt}`,
    "APT::Sandbox::User=root",
  ].flatMap((option) => ["-o", option]);
  await exec("apt-get", [...options, "-q", "update"]);
  const downloads = join(apt, "downloads");
  const words = [...options, "-q", "source", "--download-only", "--tar-only", name];
  const failure = await exec("apt-get", words, { cwd: downloads }).then(
    () => "",
    ({ stderr }: { readonly stderr: string }) => stderr,
  );
  if (failure.includes("404  Not Found")) return false;
  assert.equal(failure, "");
  const [archive] = globSync(`${name}_*.orig.tar.*`, { cwd: downloads });
  if (archive === undefined) throw new Error(`no upstream archive of ${name}`);
  mkdirSync(target, { recursive: true });
  await exec("tar", ["-xf", join(downloads, archive), "-C", target, "--strip-components=1"]);
  return true;
}

/** A Debian tree as a tar file, made once a day for all tests of this folder. Not to be changed. */
export async function debianTar(set: keyof typeof SETS): Promise<string> {
  const day = new Date().toISOString().slice(0, 10);
  const tar = await madeOnce(join(FOLDER, `${set}-${day}.tar`), (path) => bootstrap(SETS[set], path, HOOKS[set]));
  // A run that began yesterday may be about to read yesterday's.
  for (const old of globSync(`${FOLDER}/*`)) {
    if (statSync(old).mtimeMs < Date.now() - 2 * DAY_MS) rmSync(old, { force: true });
  }
  return tar;
}

/** Puts a base with python3 and procps into the catalogue of a node. */
export async function importDebian(client: Client, name: string): Promise<void> {
  const tar = createReadStream(await debianTar("plain"), { highWaterMark: 2 ** 20 });
  await client.artifacts.import(tar, { name, kind: "base", timeoutMs: LIMIT_MS });
}

/** Makes a Debian tree with `packages` as a tar file. */
export async function bootstrap(
  packages: readonly string[],
  tar: string,
  hooks: readonly string[] = [],
): Promise<void> {
  const sources = aptSources()[0] ?? "";
  const suite = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "bookworm";
  const args = ["--variant=minbase", `--include=${packages.join(",")}`, ...hooks, suite, tar, sources];
  await exec("mmdebstrap", args, { maxBuffer: OUTPUT_BYTES });
}

/** Runs a shell line in a tree, as root, without any of what a sandbox adds. */
export async function runInTree(tree: string, line: string): Promise<string> {
  const script = `mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -c "$2"`;
  const args = ["--mount", "--pid", "--fork", "sh", "-c", script, "sh", tree, line];
  const env = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" };
  return (await exec("unshare", args, { env, maxBuffer: OUTPUT_BYTES })).stdout;
}

function aptSources(): string[] {
  const files = globSync("/etc/apt/sources.list.d/*.{sources,list}");
  return [...files, "/etc/apt/sources.list"].filter(
    (file) => existsSync(file) && /^(Types:|deb )/m.test(readFileSync(file, "utf8")),
  );
}

function writePrivateSources(folder: string): void {
  for (const file of aptSources()) {
    const text = readFileSync(file, "utf8")
      .replaceAll(/^Types:.*$/gm, "Types: deb-src")
      .replaceAll(/^deb(?=[ [])/gm, "deb-src");
    writeFileSync(join(folder, basename(file)), text);
  }
}
