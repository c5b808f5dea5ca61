import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hasCode } from "#core/errors.ts";

/** What tells the things of one node from everything else on the machine. */
export interface Marks {
  /** The node's edge id: cgroups carry it. */
  readonly edge: string;
  /** A folder that only this node uses: mounts, loop devices and environments name it. */
  readonly folder: string;
}

/** Things of one kind that a node has on this machine, in words. */
export type Traces = Readonly<Record<"processes" | "cgroups" | "mounts" | "loopDevices", readonly string[]>>;

/** Everything on this machine that carries the marks of one node. Processes include those in its cgroups. */
export function findTraces(marks: Marks): Traces {
  return {
    processes: findProcesses(marks).map((pid) => `${pid} ${commandOf(pid)}`),
    cgroups: findCgroups(marks),
    mounts: findMounts(marks),
    loopDevices: findLoopDevices(marks),
  };
}

/** A mount namespace that was copied while the node ran ends with somebody else's work, such as a bootstrap of Debian. */
const HELD_LIMIT_MS = 10 * 60_000;

/** What is left once the kernel has finished: a loop device stays while any mount namespace has a copy of its mount. */
export async function remainingTraces(marks: Marks, limitMs = 60_000): Promise<Traces> {
  const began = Date.now();
  for (let end = began + limitMs; ; ) {
    const left = findTraces(marks);
    const found = Object.values(left).flat().length;
    if (found === 0) return left;
    const isHeld = found === left.loopDevices.length && left.loopDevices.every(goesWithItsLastUser);
    if (isHeld) end = Math.min(Date.now() + limitMs, began + HELD_LIMIT_MS);
    if (Date.now() > end) return left;
    // A look goes through all processes and mounts of the machine: while nothing but time helps, others should have it.
    await sleep(isHeld ? 1_000 : 50);
  }
}

/**
 * Whether a loop device that nobody of the node has any more is on its way out: another mount namespace has a copy of its mount, or the
 * kernel is not through with the file system, which takes minutes when the disk is busy.
 */
export function goesWithItsLastUser(device: string): boolean {
  return readIfThere(`/sys/block/${device}/loop/autoclear`) === "1\n";
}

/** Ids of processes of the node: they have its folder in their environment, or sit in a cgroup of its sandboxes. */
export function findProcesses({ edge, folder }: Marks): readonly number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids
    .filter((pid) => {
      if (Number(pid) === process.pid || hasDied(pid)) return false;
      const cgroups = readIfThere(`/proc/${pid}/cgroup`);
      return (
        cgroupsOf(edge).some((name) => cgroups.includes(`/dsec/${name}/`)) ||
        readIfThere(`/proc/${pid}/environ`).includes(folder)
      );
    })
    .map(Number);
}

/** Of containers, of machines, of computers, and of what fills lazy files. */
function cgroupsOf(edge: string): readonly string[] {
  return [edge, `${edge}-vm`, `${edge}-full`, `${edge}.filler`];
}

/** Orphans that have died are not the node's any more: they wait for the machine's first process to take note. */
function hasDied(pid: string): boolean {
  return /\) [ZX] /.test(readIfThere(`/proc/${pid}/stat`));
}

/** Folders below /sys/fs/cgroup that belong to the node. */
export function findCgroups({ edge }: Marks): readonly string[] {
  const root = "/sys/fs/cgroup";
  const hierarchies = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return ["", ...hierarchies.map(({ name }) => name)]
    .flatMap((name) => cgroupsOf(edge).map((node) => join(root, name, "dsec", node)))
    .flatMap((folder) => listIfThere(folder));
}

/** Mount points and sources below the node's folder. */
export function findMounts({ folder }: Marks): readonly string[] {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line.includes(folder))
    .map((line) => line.split(" ")[4] ?? line);
}

function findLoopDevices({ folder }: Marks): readonly string[] {
  return readdirSync("/sys/block")
    .filter((name) => name.startsWith("loop"))
    .filter((name) => readIfThere(`/sys/block/${name}/loop/backing_file`).includes(folder));
}

/** The folder itself and its sub-folders, deepest first: the order in which they can be removed. */
function listIfThere(folder: string): string[] {
  try {
    const inner = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return [...inner.flatMap(({ name }) => listIfThere(join(folder, name))), folder];
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "ENODEV")) return [];
    throw error;
  }
}

/** Processes end, and loop devices go, while they are looked at. */
function readIfThere(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES", "EINVAL", "ENXIO", "ENODEV")) return "";
    throw error;
  }
}

function commandOf(pid: number): string {
  return readIfThere(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim() || readIfThere(`/proc/${pid}/comm`).trim();
}
