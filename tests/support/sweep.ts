import { rmdirSync, rmSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import { MNT, unmount } from "#host/sys/mount.ts";
import { findCgroups, findMounts, findProcesses, type Marks } from "./marks.ts";
import { waitUntil } from "./wait.ts";

/** Most time that killed processes get to leave their cgroups. */
const DEATH_MS = 60_000;

/** Removes whatever carries the marks of a node: what a failed test leaves must not disturb the next. */
export async function sweep(marks: Marks): Promise<void> {
  await waitUntil("killed processes are gone", DEATH_MS, () => {
    const pids = findProcesses(marks);
    for (const pid of pids) killIfThere(pid);
    return pids.length === 0;
  });
  for (const folder of findCgroups(marks)) removeIfThere(folder);
  // Mounts made last lie on top: unmount in the opposite order.
  for (const point of findMounts(marks).toReversed()) unmount(point, MNT.DETACH);
  rmSync(marks.folder, { recursive: true, force: true });
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}

function removeIfThere(folder: string): void {
  try {
    rmdirSync(folder);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
