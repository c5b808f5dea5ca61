import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { release, tmpdir } from "node:os";
import { join } from "node:path";
import { isAppArmorOn } from "#host/apparmor/apparmor.ts";
import { openCgroups } from "#host/cgroup/cgroups.ts";
import { findProgram } from "#host/programs.ts";
import { ioctlNumber } from "#host/sys/ioctl.ts";
import { libcFunction } from "#host/sys/libc.ts";
import { type Finding, type Look, missing, partial, works } from "./fact.ts";

/** Looks that need no mounts. */
export function kernelLooks(): readonly Look[] {
  return [
    {
      name: "root",
      why: "the node makes namespaces, mounts and cgroups",
      how: "run as root",
      look: () =>
        process.geteuid?.() === 0 ? works("running as root") : missing(`running as user ${process.geteuid?.()}`),
    },
    {
      name: "kernel",
      why: "overlay over id-mapped layers needs 5.19, mounting images without loop devices 6.12",
      how: "boot a newer kernel",
      look: lookAtKernel,
    },
    {
      name: "cgroups",
      why: "limits of processor, memory and processes; ending a sandbox in one stroke",
      how: "mount cgroup2 at /sys/fs/cgroup with the cpu, memory and pids controllers",
      look: lookAtCgroups,
    },
    {
      name: "swap accounting",
      why: "limits of swap (swapMiB above 0)",
      how: "boot with swapaccount=1",
      look: lookAtSwap,
    },
    {
      name: "seccomp",
      why: "keeps sandboxes away from system calls they do not need",
      how: "boot a kernel with CONFIG_SECCOMP_FILTER",
      look: lookAtSeccomp,
    },
    {
      name: "apparmor",
      why: "second line of defence around what a sandbox's root may touch",
      how: "boot with apparmor=1 security=apparmor (Debian and Ubuntu do), and apt-get install apparmor",
      look: lookAtAppArmor,
    },
    {
      name: "kvm",
      why: "virtual machines at full speed; without it they are emulated",
      how: "enable virtualisation in the firmware, or nested virtualisation of the outer machine",
      look: lookAtKvm,
    },
    ...fileSystemLooks(),
  ];
}

function fileSystemLooks(): readonly Look[] {
  return [
    {
      name: "fuse",
      why: "sandboxes see their own limits in /proc and /sys (ownView)",
      how: "load the kernel module fuse, or start the node with --no-own-view",
      look: lookAtFuse,
    },
    {
      name: "fanotify pre-content",
      why: "image data that loads on first use straight from a store",
      how: "boot kernel 6.14 or newer; FUSE is used else",
      look: lookAtFanotify,
    },
  ];
}

function lookAtKernel(): Finding {
  const [major = 0, minor = 0] = release().split(".").map(Number);
  const version = major * 1000 + minor;
  if (version < 5019) return missing(release());
  return version < 6012 ? partial(`${release()}: images are mounted through loop devices`) : works(release());
}

async function lookAtCgroups(): Promise<Finding> {
  await using cgroups = await openCgroups(`probe-${process.pid}`);
  const { controllers, cpuQuota } = cgroups.features;
  const lacking = ["cpu", "memory", "pids"].filter((name) => ![...controllers].some((found) => found === name));
  if (!cpuQuota && controllers.has("cpu")) lacking.push("cpu quota");
  const detail = `${cgroups.layout.mode}: ${[...controllers].join(", ") || "no controllers"}`;
  if (lacking.length > 0) return missing(`${detail}; lacking ${lacking.join(", ")}`);
  return cgroups.layout.mode === "v1" ? partial(`${detail}; processes are ended one by one`) : works(detail);
}

async function lookAtSwap(): Promise<Finding> {
  await using cgroups = await openCgroups(`probe-${process.pid}`);
  if (cgroups.features.swapLimit) return works("swap has a limit of its own");
  return cgroups.features.swapAvoidable
    ? partial("sandboxes can only be kept out of swap")
    : missing("sandboxes could use the host's swap without limit");
}

function lookAtSeccomp(): Finding {
  const actions = readFileSync("/proc/sys/kernel/seccomp/actions_avail", "utf8").trim();
  return actions.split(" ").includes("errno") ? works(actions) : missing(actions);
}

function lookAtFuse(): Finding {
  closeSync(openSync("/dev/fuse", "r+"));
  return works("/dev/fuse opens");
}

function lookAtAppArmor(): Finding {
  if (!isAppArmorOn()) return missing("not in force in this kernel");
  return findProgram("apparmor_parser") === undefined
    ? partial("in force, but there is no apparmor_parser to load the profile of sandboxes with")
    : works("in force, sandboxes get a profile");
}

const KVM_GET_API_VERSION = 0xae00;
const KVM_CREATE_VM = 0xae01;

function lookAtKvm(): Finding {
  const fd = openSync("/dev/kvm", "r+");
  try {
    const version = ioctlNumber(fd, KVM_GET_API_VERSION, 0);
    closeSync(ioctlNumber(fd, KVM_CREATE_VM, 0));
    return partial(`API ${version}, creates machines; no guest was booted`);
  } finally {
    closeSync(fd);
  }
}

const FAN_CLASS_PRE_CONTENT = 8;
const FAN_MARK_ADD = 1;
const FAN_PRE_ACCESS = 0x100000;
const fanotifyInit = libcFunction<[number, number]>("fanotify_init", ["int", "int"]);
const fanotifyMark = libcFunction<[number, number, number, number, string]>("fanotify_mark", [
  "int",
  "int",
  "ulong",
  "int",
  "text",
]);

function lookAtFanotify(): Finding {
  const dir = mkdtempSync(join(tmpdir(), "dsec-probe-"));
  const fd = fanotifyInit(FAN_CLASS_PRE_CONTENT, 0);
  try {
    writeFileSync(join(dir, "file"), "");
    fanotifyMark(fd, FAN_MARK_ADD, FAN_PRE_ACCESS, -100, join(dir, "file"));
    return works(`marks files in ${tmpdir()}`);
  } finally {
    closeSync(fd);
    rmSync(dir, { recursive: true });
  }
}
