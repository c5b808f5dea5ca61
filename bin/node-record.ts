import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { hasCode } from "#core/errors.ts";
import type { Places } from "./config.ts";
import { recordFile } from "./places.ts";

/** The running node, as it describes itself to others on this machine. */
export interface NodeRecord {
  readonly pid: number;
  /** Start time of the process in clock ticks since boot: a process id alone may be somebody else's by now. */
  readonly startTicks: number;
  readonly url: string;
}

/** The node that runs now; a record that a killed one has left behind counts as none. */
export function readNodeRecord(places: Places): NodeRecord | undefined {
  const record = parseRecord(places);
  return record !== undefined && startTicksOf(record.pid) === record.startTicks ? record : undefined;
}

/** Makes this process known as the node; whole or not at all. */
export function writeNodeRecord(places: Places, url: string): void {
  const record: NodeRecord = { pid: process.pid, startTicks: startTicksOf(process.pid) ?? 0, url };
  const file = recordFile(places);
  writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o644 });
  renameSync(`${file}.new`, file);
}

/** Takes this process's own record away. */
export function removeNodeRecord(places: Places): void {
  if (parseRecord(places)?.pid === process.pid) rmSync(recordFile(places), { force: true });
}

/** Start time of a process; undefined when it is gone or only waits to be reaped. */
export function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name before may hold blanks and brackets: count from its closing one.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : Number(fields[19]);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

function parseRecord(places: Places): NodeRecord | undefined {
  try {
    const content = JSON.parse(readFileSync(recordFile(places), "utf8")) as Partial<NodeRecord> | null;
    const { pid, startTicks, url } = content ?? {};
    if (typeof pid !== "number" || typeof startTicks !== "number" || typeof url !== "string") return undefined;
    return { pid, startTicks, url };
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR") || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
