import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { hasCode } from "#core/errors.ts";

/** What the kernel tells user space, whatever it counts itself. */
const TICKS_PER_S = 100;
/** Of the flags of a task, `PF_EXITING` of the kernel. */
const EXITING = 0x4;

/**
 * When a process started, in clock ticks since boot: with the pid it names a process for good. `undefined` when there is
 * none, or only a zombie that waits for its parent.
 */
export function processStartTicks(pid: number): number | undefined {
  const fields = readFields(pid);
  if (fields === undefined || fields[0] === "Z" || fields[0] === "X") return undefined;
  return Number(fields[19]);
}

/** Whether a process is gone, or so far on its way that it has closed its files: it runs nothing of its own any more. */
export function isExiting(pid: number): boolean {
  const fields = readFields(pid);
  return fields === undefined || (Number(fields[6]) & EXITING) !== 0;
}

/** Now, in the units of `processStartTicks`. */
export function bootTicks(): number {
  return Math.round(uptime() * TICKS_PER_S);
}

/** What the kernel calls it, 15 bytes of its program's name; `undefined` when it is gone. */
export function processName(pid: number): string | undefined {
  const stat = readStat(pid);
  return stat?.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
}

/** From the state of the process on. The name in parentheses may itself hold spaces and parentheses: fields count from the last one. */
function readFields(pid: number): readonly string[] | undefined {
  const stat = readStat(pid);
  return stat?.slice(stat.lastIndexOf(")") + 2).split(" ");
}

function readStat(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}
