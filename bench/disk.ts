import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readMounts } from "#host/sys/mountinfo.ts";

const SECTOR_BYTES = 512;
/** Of /sys/block/NAME/stat, counted from 0. */
const SECTORS_WRITTEN = 6;

/**
 * Bytes that reached the device of a node's volume so far. The device is the node's own, so nobody else's writes are in it. Throws on a
 * node whose sandboxes write to a plain directory.
 */
export function writtenBytes(runDir: string): number {
  const volume = readMounts().find(
    ({ target, source, fstype }) =>
      target.startsWith(`${runDir}/`) && fstype === "btrfs" && source.startsWith("/dev/loop"),
  );
  if (volume === undefined) throw new Error("the node has no volume of its own to watch");
  execFileSync("sync", ["-f", volume.target]);
  const fields = readFileSync(`/sys/block/${volume.source.slice("/dev/".length)}/stat`, "utf8")
    .trim()
    .split(/\s+/);
  return Number(fields[SECTORS_WRITTEN]) * SECTOR_BYTES;
}
