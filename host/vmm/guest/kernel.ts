import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { asSandboxError, hasCode, SandboxError } from "#core/errors.ts";

/** A kernel for guests, unpacked: nothing of it is installed on this host. */
export interface GuestKernel {
  readonly version: string;
  readonly image: string;
  /** Holds its modules, at any depth. */
  readonly modules: string;
}

/** Debian's kernels, by the names that always lead to the newest: the one for machines that are virtual, and the one for all, which knows screens and mice. */
const PACKAGES = { cloud: "linux-image-cloud-amd64", generic: "linux-image-amd64" } as const;
/** Which of them. */
export type KernelFlavour = keyof typeof PACKAGES;

/** Where each is unpacked, in the directory of guests. */
const FOLDERS: Readonly<Record<KernelFlavour, string>> = { cloud: "kernel", generic: "kernel-generic" };
const FETCH_LIMIT_MS = 10 * 60_000;
const OUTPUT_BYTES = 1024 * 1024;

/**
 * The guest kernel below `dir`, fetched through this host's apt when none is there yet. `FailedPrecondition` where that has none,
 * `Unavailable` when it cannot be fetched now.
 */
export async function guestKernel(dir: string, flavour: KernelFlavour = "cloud"): Promise<GuestKernel> {
  if (process.arch !== "x64") {
    throw new SandboxError("FailedPrecondition", `there is no guest kernel for ${process.arch}`, {
      hint: "machines need an x86-64 host",
    });
  }
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const unpacked = join(dir, FOLDERS[flavour]);
  if (!existsSync(unpacked)) await fetchKernel(dir, unpacked, PACKAGES[flavour]);
  const boot = join(unpacked, "boot");
  const version = readdirSync(boot)
    .find((name) => name.startsWith("vmlinuz-"))
    ?.slice("vmlinuz-".length);
  if (version === undefined) throw new SandboxError("Internal", `the package ${PACKAGES[flavour]} holds no kernel`);
  const modules = ["usr/lib/modules", "lib/modules"].map((name) => join(unpacked, name, version)).find(existsSync);
  if (modules === undefined) throw new SandboxError("Internal", `the package ${PACKAGES[flavour]} holds no modules`);
  return { version, image: join(boot, `vmlinuz-${version}`), modules };
}

/** Unpacked beside its place, and moved there when whole. */
async function fetchKernel(dir: string, target: string, name: string): Promise<void> {
  const temp = mkdtempSync(join(dir, "fetch-"));
  try {
    await run("apt-get", ["-q", "download", await currentPackage(name)], temp);
    const file = readdirSync(temp).find((name) => name.endsWith(".deb"));
    if (file === undefined) throw new Error("apt-get downloaded nothing");
    await run("dpkg-deb", ["-x", file, "unpacked"], temp);
    renameSync(join(temp, "unpacked"), target);
  } catch (error) {
    if (hasCode(error, "EEXIST", "ENOTEMPTY")) return;
    throw fetchError(error);
  } finally {
    rmSync(temp, { recursive: true, force: true });
  }
}

/** What the package of that name stands for now. */
async function currentPackage(name: string): Promise<string> {
  const said = await run("apt-cache", ["depends", name], "/");
  const current = /^\s*Depends: (linux-image-\S+)/m.exec(said)?.[1];
  if (current !== undefined) return current;
  throw new SandboxError("FailedPrecondition", `apt of this host knows no package ${name}`, {
    hint: "run apt-get update; the package is in Debian's archive",
  });
}

function fetchError(error: unknown): SandboxError {
  if (error instanceof SandboxError) return error;
  if (hasCode(error, "ENOENT")) {
    return new SandboxError("FailedPrecondition", "the guest kernel is fetched by apt, which this host lacks", {
      cause: error,
      hint: "machines need a Debian host",
    });
  }
  if (hasCode(error, "ENOSPC", "EDQUOT")) return asSandboxError(error);
  return new SandboxError("Unavailable", "fetching the guest kernel", {
    cause: error,
    hint: "is Debian's archive reachable? apt-get update",
  });
}

async function run(program: string, words: readonly string[], cwd: string): Promise<string> {
  const options = { cwd, timeout: FETCH_LIMIT_MS, maxBuffer: OUTPUT_BYTES, env: { ...process.env, LC_ALL: "C" } };
  return (await promisify(execFile)(program, words, options)).stdout;
}
