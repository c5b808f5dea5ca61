import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { aptSources, hostSuite, sourceLine, sourcesOf } from "#host/debian-sources.ts";

const ROOT = join(import.meta.dirname, "../..");
const ENTER = join(import.meta.dirname, "testdata/enter");
const OUTPUT_BYTES = 64 * 1024 * 1024;
/** All that a system has before the first command of the README, beside what is essential to it: apt, and what cloned the repository. */
const INCLUDE = "apt,ca-certificates,git";

/** A release that the README names. */
export interface Release {
  readonly distribution: "debian" | "ubuntu";
  readonly suite: string;
}

/** Ubuntu's archive, unless `DSEC_UBUNTU_ARCHIVE` names a mirror; its keys are its package's, known by their digest. */
const UBUNTU = {
  archive: process.env.DSEC_UBUNTU_ARCHIVE ?? "http://archive.ubuntu.com/ubuntu",
  keyring: "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
  keyringSha256: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
};
const AUTHORITIES = "root/authorities.pem";
const UBUNTU_KEYS = "usr/share/keyrings/ubuntu-archive-keyring.gpg";

/** Why this machine cannot make such a system; `undefined` where it can. */
export async function obstacle({ distribution, suite }: Release): Promise<string | undefined> {
  if (distribution === "debian") {
    return debianLines(suite).length > 0 ? undefined : "apt of this host names no archive of Debian";
  }
  const answer = await fetch(`${UBUNTU.archive}/dists/${suite}/Release`, { method: "HEAD" }).catch(String);
  if (typeof answer === "string")
    return `the archive of Ubuntu does not answer (DSEC_UBUNTU_ARCHIVE names another): ${answer}`;
  return answer.ok ? undefined : `the archive of Ubuntu has no ${suite}: ${answer.status}`;
}

/** Installs the smallest system of a release below `folder`, with a clone of what is committed here; answers its root. */
export async function makeSystem({ distribution, suite }: Release, folder: string): Promise<string> {
  const tree = join(folder, "system");
  const keys = distribution === "ubuntu" ? await ubuntuKeys(folder) : undefined;
  const lines = keys === undefined ? debianLines(suite) : ubuntuLines(suite, keys);
  const options = ["--variant=minbase", "--mode=root", "--format=directory", `--include=${INCLUDE}`];
  await exec("mmdebstrap", [...options, suite, tree, ...lines], { maxBuffer: OUTPUT_BYTES });
  // The keys that the archives were read with here have another path there.
  if (keys !== undefined) writeSources(tree, ubuntuLines(suite, `/${UBUNTU_KEYS}`));
  await exec("git", ["clone", "--quiet", "--no-local", ROOT, join(tree, "root/dsec")]);
  return tree;
}

/**
 * Runs a command in a system, in /root/dsec, and answers its exit status; lines of its output and errors go to `hear`. All that it
 * started has ended then.
 */
export async function runIn(
  tree: string,
  argv: readonly string[],
  hear: (line: string) => void,
): Promise<number | null> {
  const namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--"];
  const command = ["env", "-i", ...(await environment(tree)), "sh", "-c", 'cd /root/dsec && exec "$@"', "sh", ...argv];
  // It ends with this process, however that ends, and all that is inside with it.
  const words = ["--pdeathsig", "KILL", "--", "unshare", ...namespaces, ENTER, tree, ...command];
  const child = spawn("setpriv", words, { stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on("line", hear);
  const [status] = await once(child, "close");
  return status;
}

/** What a person has after logging in, and how this machine reaches the registry of npm: its address, and who vouches for it. */
async function environment(tree: string): Promise<readonly string[]> {
  const { stdout } = await exec("npm", ["config", "get", "registry"]);
  const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  const words = ["HOME=/root", "USER=root", "TERM=dumb", `PATH=${path}`, `npm_config_registry=${stdout.trim()}`];
  const authorities = process.env.NODE_EXTRA_CA_CERTS;
  if (authorities === undefined) return words;
  copyFileSync(authorities, join(tree, AUTHORITIES));
  return [...words, `NODE_EXTRA_CA_CERTS=/${AUTHORITIES}`];
}

function debianLines(suite: string): readonly string[] {
  const sources = aptSources().filter(({ uri }) => /\/debian(-security)?\/?$/.test(uri));
  return sourcesOf(suite, hostSuite(), sources).map(sourceLine);
}

function ubuntuLines(suite: string, keys: string): readonly string[] {
  const components = "main universe";
  return ["", "-updates", "-security"].map((pocket) => {
    return `deb [signed-by=${keys}] ${UBUNTU.archive} ${suite}${pocket} ${components}`;
  });
}

/** The keys of Ubuntu's archive, which Debian has no package of; answers their file. */
async function ubuntuKeys(folder: string): Promise<string> {
  const answer = await fetch(`${UBUNTU.archive}/${UBUNTU.keyring}`);
  if (!answer.ok) throw new Error(`the archive of Ubuntu has no ${UBUNTU.keyring}: ${answer.status}`);
  const bytes = Buffer.from(await answer.arrayBuffer());
  const digest = createHash("sha256").update(bytes).digest("hex");
  if (digest !== UBUNTU.keyringSha256) throw new Error(`${UBUNTU.keyring} is not what it was: sha256 ${digest}`);
  const [file, target] = [join(folder, "keyring.deb"), join(folder, "keyring")];
  writeFileSync(file, bytes);
  await exec("dpkg-deb", ["-x", file, target]);
  return join(target, UBUNTU_KEYS);
}

function writeSources(tree: string, lines: readonly string[]): void {
  const apt = join(tree, "etc/apt");
  rmSync(join(apt, "sources.list.d"), { recursive: true, force: true });
  writeFileSync(join(apt, "sources.list"), `${lines.join("\n")}\n`);
}

const exec = promisify(execFile);
