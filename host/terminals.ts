import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";

/**
 * Terminals of one sandbox: `max` of its devpts in cradle/root.c. The kernel keeps up to 128 KiB for each that it charges to nobody, so
 * this bounds what a sandbox may take of the machine's memory beside its limit.
 */
export const TERMINALS_EACH = 64;

/** What the kernel lets the machine have at most. */
const MOST = 2 ** 20;

/**
 * Makes room for the terminals of so many sandboxes beside those of the machine: Linux counts them together, and its 3,072 for all
 * sandboxes would be used up by a few of them. The limit is raised, never lowered, and stays when the node ends: others may count on it.
 * Says in a line what was done, or why it could not be; undefined when there is room.
 */
export function provideTerminals(sandboxes: number, settings = "/proc/sys/kernel/pty"): string | undefined {
  const file = join(settings, "max");
  try {
    const most = numberIn(file);
    const wanted = Math.min(MOST, numberIn(join(settings, "reserve")) + sandboxes * TERMINALS_EACH);
    if (most >= wanted) return undefined;
    writeFileSync(file, String(wanted), { flag: "r+" });
    return `kernel.pty.max is ${wanted} now, not ${most}: room for ${TERMINALS_EACH} terminals in each sandbox`;
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "EPERM", "EROFS")) throw error;
    return `sandboxes may take each other's terminals: kernel.pty.max cannot be raised (${error instanceof Error ? error.message : error})`;
  }
}

function numberIn(file: string): number {
  return Number(readFileSync(file, "utf8"));
}
