import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { type DebianOptions, startDebianBuild } from "#host/debian.ts";
import { makeAgentPackage } from "./agent-package.ts";
import { addDesktop, DESKTOP_PACKAGES } from "./desktop.ts";
import { addFile } from "./tree-files.ts";

/** A Debian, and what is wanted of it. */
export interface DebianSystem extends DebianOptions {
  /** Its screen is a desktop, not a console. */
  readonly desktop: boolean;
  /** The agent's program. */
  readonly agent: string;
}

/** Of the agent's package in a system that is built here. */
const BUILT_VERSION = "0";

/** A whole Debian has these beside its minimal system: its first process, its devices, what loads its modules. */
const SYSTEM = ["systemd-sysv", "udev", "dbus", "kmod", "iproute2", "procps", "apparmor"];

/** Where processors are emulated, on a busy host, a device takes minutes to be found: a console that is given up has no prompt. */
const PATIENCE = `[Manager]
DefaultDeviceTimeoutSec=20min
DefaultTimeoutStartSec=20min
`;
/** Whoever is at the console or the screen is root: the machine is the user's own. */
const AUTOLOGIN = (kind: string) => `[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root ${kind}
`;
/** There is no network to fetch from, and no volumes of LVM to check. */
const NEEDLESS = ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service"];

/** Unpacks a Debian of this host's archives with the agent as a service. Throws as `startDebianBuild` does. */
export async function debianSystem(tree: string, { desktop, agent, ...options }: DebianSystem): Promise<void> {
  mkdirSync(tree);
  await unpack(tree, { ...options, include: [...SYSTEM, ...(desktop ? DESKTOP_PACKAGES : []), ...options.include] });
  await installAgent(tree, agent);
  for (const unit of NEEDLESS) symlinkSync("/dev/null", join(tree, "etc/systemd/system", unit));
  addFile(tree, "etc/systemd/system.conf.d/dsec.conf", PATIENCE, 0o644);
  addFile(tree, "etc/systemd/system/getty@tty1.service.d/root.conf", AUTOLOGIN("- $TERM"), 0o644);
  addFile(
    tree,
    "etc/systemd/system/serial-getty@ttyS0.service.d/root.conf",
    AUTOLOGIN("--keep-baud 115200 - $TERM"),
    0o644,
  );
  addFile(tree, "etc/hostname", "computer\n", 0o644);
  addFile(tree, "etc/fstab", "/dev/vda / ext4 errors=remount-ro 0 1\n", 0o644);
  // Filled at the first start, so that no two computers share it.
  addFile(tree, "etc/machine-id", "", 0o444);
  await promisify(execFile)("chroot", [tree, "useradd", "--create-home", "--shell", "/bin/bash", "user"]);
  if (desktop) addDesktop(tree);
}

async function installAgent(tree: string, agent: string): Promise<void> {
  const name = "root/dsec-agent.deb";
  await makeAgentPackage({ agent, version: BUILT_VERSION, target: join(tree, name) });
  await promisify(execFile)("chroot", [tree, "dpkg", "--install", `/${name}`]);
  rmSync(join(tree, name));
}

async function unpack(tree: string, options: DebianOptions): Promise<void> {
  await using build = startDebianBuild(options);
  const tar = spawn("tar", ["-C", tree, "--numeric-owner", "-xpf", "-"], { stdio: ["pipe", "ignore", "ignore"] });
  const unpacked = once(tar, "close");
  // How either fails is told by its end.
  tar.stdin.on("error", () => undefined);
  for await (const chunk of build.tar) {
    // It stops at the archive's end, in front of the zeros that fill the last block: whoever writes those must not find the pipe broken.
    if (tar.stdin.writable && !tar.stdin.write(chunk)) await Promise.race([once(tar.stdin, "drain"), unpacked]);
  }
  tar.stdin.end();
  await build.finished;
  const [code] = await unpacked;
  if (code !== 0) throw new Error(`tar ended with ${code}`);
}
