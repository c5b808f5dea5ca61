import { execFile } from "node:child_process";
import { mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";
import { findBusybox } from "#host/busybox.ts";
import { cpioArchive } from "#host/vmm/guest/cpio.ts";
import { type GuestKernel, guestKernel } from "#host/vmm/guest/kernel.ts";
import { guestModules } from "#host/vmm/guest/modules.ts";
import { typedStorageErrors } from "../durable.ts";
import type { LayerStore } from "../store.ts";
import { busyboxSystem } from "./busybox-system.ts";
import { debianSystem } from "./debian-system.ts";
import { type ImportedVmImage, storeFiles, VM_IMAGE_FILES } from "./import.ts";
import { AGENT_PATH, addFile, SHELL_PATH } from "./tree-files.ts";

/** A system to be built. */
export interface BuildVmOptions {
  readonly store: LayerStore;
  /** Keeps the kernel of machines. */
  readonly guestDir: string;
  /** The agent's program, and what its sessions run. */
  readonly agent: string;
  readonly shell: string;
  /** Of Debian; undefined: this machine's static busybox alone. */
  readonly debian:
    | { readonly suite: string | undefined; readonly include: readonly string[]; readonly desktop: boolean }
    | undefined;
  readonly signal: AbortSignal;
  readonly progress: (line: string) => void;
}

const MIB = 1024 * 1024;
const BUSYBOX_DISK_BYTES = 256 * MIB;
const DEBIAN_DISK_BYTES = 8192 * MIB;
const LIMIT_MS = 10 * 60_000;

/** First process of the initial file system: loads what the disk needs, and hands over to the system on it. */
const START = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
while read -r name; do /bin/busybox insmod "/modules/$name"; done </modules/list
while [ ! -b /dev/vda ]; do /bin/busybox sleep 0.05; done
/bin/busybox mount -t ext4 /dev/vda /disk
/bin/busybox mount -o move /dev /disk/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /disk /sbin/init
`;

/**
 * Builds the disk of a system with the agent as a service, and what starts it: a kernel and an initial file system, without booting anything.
 * Throws as `startDebianBuild`, `guestKernel` and `findBusybox` do, `StorageFull`, and leaves nothing then.
 */
export async function buildVmImage(options: BuildVmOptions): Promise<Omit<ImportedVmImage, "format">> {
  const { store, debian, signal, progress } = options;
  await using scratch = await store.scratch();
  return await typedStorageErrors(async () => {
    const [tree, disk, initramfs] = ["tree", "disk", "initramfs"].map((name) => join(scratch.dir, name)) as [
      string,
      string,
      string,
    ];
    const kernel = await guestKernel(options.guestDir, debian?.desktop === true ? "generic" : "cloud");
    if (debian === undefined) await busyboxSystem(tree, signal);
    else await debianSystem(tree, { ...debian, agent: options.agent, signal, progress });
    await addKernel(tree, kernel, debian !== undefined);
    if (debian === undefined) addFile(tree, AGENT_PATH, await readFile(options.agent), 0o755);
    addFile(tree, SHELL_PATH, await readFile(options.shell), 0o755);
    progress("making the disk");
    writeFileSync(disk, "");
    truncateSync(disk, debian === undefined ? BUSYBOX_DISK_BYTES : DEBIAN_DISK_BYTES);
    await run("mke2fs", ["-q", "-F", "-t", "ext4", "-d", tree, disk], signal);
    rmSync(tree, { recursive: true });
    writeFileSync(initramfs, await initialFiles(kernel));
    const files = {
      [VM_IMAGE_FILES.disk]: disk,
      [VM_IMAGE_FILES.kernel]: kernel.image,
      [VM_IMAGE_FILES.initramfs]: initramfs,
    };
    return await storeFiles(store, files, signal);
  });
}

/** What a system loads when it finds devices; one without udev has what the initial file system has loaded. */
async function addKernel(tree: string, { version, modules }: GuestKernel, hasUdev: boolean): Promise<void> {
  if (!hasUdev) return;
  const target = join(tree, "usr/lib/modules", version);
  mkdirSync(dirname(target), { recursive: true });
  await run("cp", ["-a", modules, target]);
  await run("chroot", [tree, "depmod", version]);
}

async function initialFiles(kernel: GuestKernel): Promise<Buffer> {
  const modules = await guestModules(kernel.modules);
  const folders = ["bin", "dev", "proc", "disk", "modules"].map((path) => ({ path, type: "directory" }) as const);
  const file = (path: string, mode: number, bytes: Buffer) => ({ path, type: "file", mode, bytes }) as const;
  return cpioArchive([
    ...folders,
    { path: "dev/console", type: "device", major: 5, minor: 1 },
    file("bin/busybox", 0o755, await readFile(await findBusybox())),
    file("init", 0o755, Buffer.from(START)),
    file("modules/list", 0o600, Buffer.from(modules.map(({ name }) => `${name}.ko\n`).join(""))),
    ...modules.map(({ name, bytes }) => file(`modules/${name}.ko`, 0o600, bytes)),
  ]);
}

async function run(program: string, words: readonly string[], signal?: AbortSignal): Promise<void> {
  try {
    await promisify(execFile)(program, words, { timeout: LIMIT_MS, ...(signal && { signal }) });
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    throw new SandboxError("FailedPrecondition", `this node has no ${program}`, {
      cause: error,
      hint: "apt-get install e2fsprogs on the node",
    });
  }
}
