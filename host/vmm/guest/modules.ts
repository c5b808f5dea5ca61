import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { SandboxError } from "#core/errors.ts";

/** A kernel module, by the name that others need it by. */
export interface KernelModule {
  readonly name: string;
  readonly bytes: Buffer;
}

const MODULE = /\.ko(\.xz)?$/;
/** The largest are some megabytes. */
const MAX_MODULE_BYTES = 64 * 1024 * 1024;

/**
 * What a guest needs beyond a bare kernel: its bus, disks, persistent memory, ports, randomness, a way to tell what is free, file systems. crc32c is asked for by
 * its users at run time, without a dependency that their files name.
 */
const WANTED = [
  "crc32c_generic",
  "virtio_pci",
  "virtio_blk",
  "virtio_pmem",
  "nd_pmem",
  "virtio_console",
  "virtio_rng",
  "virtio_balloon",
  "erofs",
  "overlay",
  "ext4",
];

/**
 * The modules that a guest of this kernel needs, each after those it depends on itself. `root` is where the kernel's package was
 * unpacked. Throws `FailedPrecondition` for a kernel without one of them.
 */
export async function guestModules(root: string): Promise<readonly KernelModule[]> {
  const files = moduleFiles(root);
  const builtIn = namesIn(readFileSync(join(root, "modules.builtin"), "utf8"));
  const found = new Map<string, KernelModule>();
  const add = async (name: string): Promise<void> => {
    if (found.has(name) || builtIn.has(name)) return;
    const path = files.get(name);
    if (path === undefined) {
      throw new SandboxError("FailedPrecondition", `the guest kernel has no module ${name}`, {
        hint: "use a kernel of Debian's cloud flavour",
      });
    }
    const bytes = await readModule(path);
    for (const needed of dependsOf(bytes)) await add(needed);
    found.set(name, { name, bytes });
  };
  for (const name of WANTED) await add(name);
  return [...found.values()];
}

function moduleFiles(root: string): ReadonlyMap<string, string> {
  const files = readdirSync(root, { recursive: true, encoding: "utf8" });
  return new Map(files.filter((file) => MODULE.test(file)).map((file) => [nameOf(file), join(root, file)]));
}

/** Of a list of files, a line each. */
function namesIn(list: string): ReadonlySet<string> {
  return new Set(list.split("\n").map(nameOf));
}

function nameOf(file: string): string {
  return basename(file).replace(MODULE, "").replaceAll("-", "_");
}

async function readModule(path: string): Promise<Buffer> {
  if (!path.endsWith(".xz")) return readFileSync(path);
  return (await run("xz", ["-dc", path], { encoding: "buffer", maxBuffer: MAX_MODULE_BYTES })).stdout;
}

/** Names in the module's own list. */
function dependsOf(bytes: Buffer): readonly string[] {
  const key = "\0depends=";
  const at = bytes.indexOf(key);
  if (at < 0) return [];
  const text = bytes.toString("latin1", at + key.length, bytes.indexOf(0, at + key.length));
  return text === "" ? [] : text.split(",").map((name) => name.replaceAll("-", "_"));
}

const run = promisify(execFile);
