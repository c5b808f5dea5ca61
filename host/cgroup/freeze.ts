import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { NodeTree } from "./layout.ts";

/** A process that waits for a disk stops when it has what it waits for; one that waits longer for it is not waited for. */
const FREEZE_DEADLINE_MS = 5_000;
/** Most processes stop within these. */
const QUICK_LOOKS = 50;
const PAUSE_MS = 1;

/**
 * Holds every process of these cgroups of one sandbox still, those that they start meanwhile too; resolves when all are. Rejects
 * with `Unavailable` when some do not stop, and with the reason of `signal`; nothing is held then. Cgroups that are gone have
 * nobody to hold.
 */
export async function freezeCgroup(trees: readonly NodeTree[], signal: AbortSignal): Promise<void> {
  const found = trees.find(({ tree }) => tree.freezes);
  if (found === undefined) {
    throw new SandboxError("FailedPrecondition", "this host cannot hold a sandbox still", {
      hint: "mount cgroup2, or the freezer of v1; or take it as it runs: consistent false",
    });
  }
  try {
    if (!write(found, true)) return;
    const giveUpAtMs = performance.now() + FREEZE_DEADLINE_MS;
    for (let looks = 0; !isFrozen(found); looks += 1) {
      signal.throwIfAborted();
      if (performance.now() > giveUpAtMs) throw doesNotStop();
      if (looks < QUICK_LOOKS) await setImmediate();
      else await delay(PAUSE_MS);
    }
  } catch (error) {
    write(found, false);
    throw error;
  }
}

/** Lets everything of these cgroups go on. Safe when nothing was held, and for cgroups that are gone. */
export function thawCgroup(trees: readonly NodeTree[]): void {
  const found = trees.find(({ tree }) => tree.freezes);
  if (found !== undefined) write(found, false);
}

/** False when the cgroup is gone. */
function write({ tree, dir }: NodeTree, frozen: boolean): boolean {
  const [file, value] =
    tree.version === 2 ? ["cgroup.freeze", frozen ? "1" : "0"] : ["freezer.state", frozen ? "FROZEN" : "THAWED"];
  try {
    // No O_CREAT: the directory may go in between, and come again as somebody else's.
    writeFileSync(join(dir, file), value, { flag: "r+" });
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENODEV")) return false;
    throw error;
  }
}

/** True for a cgroup that is gone, too. */
function isFrozen({ tree, dir }: NodeTree): boolean {
  try {
    if (tree.version === 2) return readFileSync(join(dir, "cgroup.events"), "utf8").includes("frozen 1");
    return readFileSync(join(dir, "freezer.state"), "utf8").trim() === "FROZEN";
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENODEV")) return true;
    throw error;
  }
}

function doesNotStop(): SandboxError {
  return new SandboxError("Unavailable", `the sandbox does not hold still within ${FREEZE_DEADLINE_MS} ms`, {
    hint: "something in it waits for the kernel; try again, or take it as it runs: consistent false",
  });
}
