import { mkdirSync, symlinkSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { busyboxApplets, findBusybox } from "#host/busybox.ts";
import { AGENT_PATH, addFile } from "./tree-files.ts";

const DIRECTORIES = [
  "bin",
  "dev",
  "etc",
  "home/user",
  "proc",
  "root",
  "run",
  "sbin",
  "sys",
  "tmp",
  "usr/bin",
  "usr/sbin",
  "var/tmp",
];

/** Mounts what a machine has; the console and the screen get a shell each, as root: the machine is the user's own. */
const RC = `#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777,nr_inodes=1000000 tmp /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
ip link set lo up
hostname -F /etc/hostname
`;
const INITTAB = `::sysinit:/etc/rc
::respawn:/${AGENT_PATH} --guest
ttyS0::respawn:-/bin/sh
tty1::respawn:-/bin/sh
::ctrlaltdel:/sbin/reboot
::shutdown:/bin/umount -a -r
`;

/** A system of this machine's static busybox alone: it starts in a moment, also in software. */
export async function busyboxSystem(tree: string, signal: AbortSignal): Promise<void> {
  const binary = await findBusybox();
  for (const directory of DIRECTORIES) mkdirSync(join(tree, directory), { recursive: true });
  addFile(tree, "bin/busybox", await readFile(binary), 0o755);
  for (const path of await busyboxApplets(binary, signal)) {
    if (path !== "bin/busybox" && path !== "linuxrc") symlinkSync("/bin/busybox", join(tree, path));
  }
  addFile(tree, "etc/rc", RC, 0o755);
  addFile(tree, "etc/inittab", INITTAB, 0o644);
  addFile(
    tree,
    "etc/passwd",
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
    0o644,
  );
  addFile(tree, "etc/group", "root:x:0:\nnogroup:x:65534:\ntty:x:5:\nuser:x:1000:\n", 0o644);
  addFile(tree, "etc/hostname", "computer\n", 0o644);
}
