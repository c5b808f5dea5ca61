import { rmdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import { subdirectories } from "./tree.ts";

/** Killed processes leave a cgroup a moment after they stop running; a machine under load takes its time. */
const REMOVE_DEADLINE_MS = 10_000;
const MAX_PAUSE_MS = 50;

/** Removes a cgroup and what is below it. Waits for dying processes; `Unavailable` when some will not go. Safe twice. */
export async function removeCgroup(dir: string, deadlineMs = REMOVE_DEADLINE_MS): Promise<void> {
  const giveUpAtMs = performance.now() + deadlineMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    try {
      await rmdir(dir);
      return;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return;
      if (!hasCode(error, "EBUSY", "ENOTEMPTY")) throw error;
      if (performance.now() > giveUpAtMs) {
        throw new SandboxError("Unavailable", `cgroup ${dir} still has processes`, { cause: error });
      }
    }
    for (const name of subdirectories(dir)) await removeCgroup(join(dir, name), giveUpAtMs - performance.now());
    await delay(pauseMs);
  }
}
