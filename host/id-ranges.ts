import { readFileSync } from "node:fs";
import type { Place } from "#core/backend.ts";
import { hasCode, SandboxError } from "#core/errors.ts";

/** Ids of one sandbox: 0 to 65535 inside. */
export const IDS_PER_SANDBOX = 65_536;

/** The kernel's ids are 32 bits wide, but many programs take the upper half for negative numbers. */
export const ID_LIMIT = 2 ** 31;

/**
 * From one range to the next. The kernel hashes users by the low bits of their id: ranges that all start at multiples of 65,536
 * would share one bucket, through which every create then searches.
 */
const RANGE_STRIDE = IDS_PER_SANDBOX + 1;

/** First host id of the sandbox at a place. Throws `NodeFull` when the node has no ids left for it. */
export function uidBaseOf(place: Place, firstUid: number): number {
  const base = firstUid + place.slot * RANGE_STRIDE;
  if (place.slot < 0 || base + IDS_PER_SANDBOX > ID_LIMIT) {
    throw new SandboxError("NodeFull", `slot ${place.slot} has no user ids left`, {
      hint: "lower firstUid, or run fewer sandboxes on this node",
    });
  }
  return base;
}

/** An id between two ranges, which no sandbox has: for programs of the node that read what is hostile. */
export function helperUid(firstUid: number): number {
  return firstUid + IDS_PER_SANDBOX;
}

/**
 * Refuses a first id from which sandboxes would share ids with people's rootless containers: equal ids may signal each
 * other's processes and open each other's files.
 */
export function checkIdRanges(firstUid: number, files: readonly string[] = ["/etc/subuid", "/etc/subgid"]): void {
  for (const file of files) {
    for (const { owner, end } of readRanges(file)) {
      if (end <= firstUid) continue;
      throw new SandboxError("FailedPrecondition", `user ids from ${firstUid} on are given to ${owner} by ${file}`, {
        hint: `set firstUid to ${Math.ceil(end / IDS_PER_SANDBOX) * IDS_PER_SANDBOX} or above`,
      });
    }
  }
}

/** Lines of `owner:first:count`. */
function readRanges(file: string): readonly { readonly owner: string; readonly end: number }[] {
  return readText(file)
    .split("\n")
    .map((line) => line.split(":"))
    .filter((fields) => fields.length === 3)
    .map(([owner = "", first, count]) => ({ owner, end: Number(first) + Number(count) }));
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "";
    throw error;
  }
}
