import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { aptSources, hostSuite, sourceLine, sourcesOf } from "#host/debian-sources.ts";

const ROOT = join(import.meta.dirname, "../..");
const TESTDATA = join(import.meta.dirname, "testdata");
/** What it costs on the host's disk is what is written. */
const DISK_SIZE = "8G";
const OUTPUT_BYTES = 64 * 1024 * 1024;

/** What the guest has beside the packages that `./dsec` installs: Debian's own system has these. */
const SYSTEM_PACKAGES = ["apparmor", "iproute2", "kmod", "procps"];

/** The files that a guest starts from. */
export interface GuestImage {
  readonly kernel: string;
  readonly initrd: string;
  readonly disk: string;
}

/**
 * Makes a Debian of `suite` from the archives of this host's apt, with its own kernel, what a node needs, and this tree with
 * its npm packages. C programs are left out: the guest builds its own. Everything is below `folder`, which is the caller's.
 */
export async function buildImage(suite: string, folder: string): Promise<GuestImage> {
  const sources = sourcesOf(suite, hostSuite(), aptSources()).map(sourceLine);
  if (sources.length === 0) throw new Error("apt of this host names no archive of its own release");
  const tree = join(folder, "tree");
  const include = [...nodePackages(), ...SYSTEM_PACKAGES].join(",");
  const hook = `--customize-hook=${join(TESTDATA, "add-kernel")} "$1"`;
  const options = ["--variant=minbase", "--mode=root", "--format=directory", `--include=${include}`, hook];
  await exec("mmdebstrap", [...options, suite, tree, ...sources], { maxBuffer: OUTPUT_BYTES });
  await copyTree(join(tree, "root/dsec"));
  copyFileSync(join(TESTDATA, "serve"), join(tree, "sbin/serve"));
  const [kernel, initrd, disk] = [join(folder, "kernel"), join(folder, "initrd"), join(folder, "disk")];
  copyFileSync(join(tree, "boot/vmlinuz"), kernel);
  copyFileSync(join(tree, "boot/initrd"), initrd);
  await exec("mke2fs", ["-q", "-t", "ext4", "-d", tree, disk, DISK_SIZE]);
  rmSync(tree, { recursive: true });
  return { kernel, initrd, disk };
}

/** The list at the door, so that the guest needs no network. */
function nodePackages(): readonly string[] {
  const list = /^node_packages="(.*)"$/m.exec(readFileSync(join(ROOT, "dsec"), "utf8"))?.[1];
  if (list === undefined) throw new Error("dsec names no packages of a node");
  return list.split(" ");
}

async function copyTree(target: string): Promise<void> {
  mkdirSync(target);
  const line = 'tar -C "$1" --exclude=./.git --exclude=./.build -cf - . | tar -C "$2" -xf -';
  await exec("sh", ["-c", line, "sh", ROOT, target]);
}

const exec = promisify(execFile);
