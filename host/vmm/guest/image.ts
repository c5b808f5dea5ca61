import { createHash, randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type CpioEntry, cpioArchive } from "./cpio.ts";
import { guestKernel } from "./kernel.ts";
import { guestModules } from "./modules.ts";

/** The programs that a guest starts with: the agent, the launcher of containers, the program that sessions run. */
export interface GuestPrograms {
  readonly agent: string;
  readonly cradle: string;
  readonly shell: string;
}

/** What a machine boots. */
export interface GuestImage {
  /** Of everything in it: another one boots another machine. */
  readonly digest: string;
  readonly kernelVersion: string;
  readonly kernel: string;
  readonly initramfs: string;
}

/** Makes what machines boot, below `dir`, unless it is there already. Throws as `guestKernel` and `guestModules` do. */
export async function guestImage(dir: string, programs: GuestPrograms): Promise<GuestImage> {
  const kernel = await guestKernel(dir);
  const modules = await guestModules(kernel.modules);
  const archive = cpioArchive([
    folder("dev"),
    // The kernel opens it for its first process before anything is mounted.
    { path: "dev/console", type: "device", major: 5, minor: 1 },
    // Execute-only: who can read it can trace the agent.
    file("init", 0o711, readFileSync(programs.agent)),
    file("dsec-agent", 0o711, readFileSync(programs.agent)),
    file("dsec-cradle", 0o700, readFileSync(programs.cradle)),
    file("bash", 0o755, readFileSync(programs.shell)),
    folder("modules"),
    file("modules/list", 0o600, Buffer.from(modules.map(({ name }) => `${name}.ko\n`).join(""))),
    ...modules.map(({ name, bytes }) => file(`modules/${name}.ko`, 0o600, bytes)),
  ]);
  const digest = createHash("sha256").update(kernel.version).update(archive).digest("hex");
  const initramfs = join(dir, `initramfs-${digest.slice(0, 16)}`);
  if (!existsSync(initramfs)) {
    // Other nodes may make the same.
    const unfinished = `${initramfs}.${randomUUID()}`;
    writeFileSync(unfinished, archive, { mode: 0o600 });
    renameSync(unfinished, initramfs);
  }
  return { digest, kernelVersion: kernel.version, kernel: kernel.image, initramfs };
}

function folder(path: string): CpioEntry {
  return { path, type: "directory" };
}

function file(path: string, mode: number, bytes: Buffer): CpioEntry {
  return { path, type: "file", mode, bytes };
}
