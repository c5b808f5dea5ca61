import type { OomVictim, Usage } from "#core/usage.ts";
import { MAX_OOM_VICTIMS } from "#core/usage.ts";

/** The kernel's clock and the machine's are not quite the same. */
const CLOCK_SLACK_MS = 5_000;
/** Sizes are counted in batches. */
const SIZE_SLACK_BYTES = 4 * 1024 * 1024;

/** A command that was killed, as its agent tells. */
export interface KilledCommand {
  readonly startedAtMs: number;
  /** Largest size of its leader, or of a child that it waited for. */
  readonly maxRssKiB: number;
}

/**
 * Tells whether a command's death was one of the kills that the sandbox's cgroup has counted. Each kill explains one death at most,
 * and only a death that it can have caused: the count alone would blame it for a later SIGKILL by somebody else.
 */
export class OomKills {
  #explained: number;
  #unrecorded = 0;
  readonly #claimed = new Set<string>();

  /** `explained`: deaths of commands that an earlier edge has recorded as such. */
  constructor(explained = 0) {
    this.#explained = explained;
  }

  /** Takes a kill for this death; false when there is none that fits. */
  claim({ oomKills, oomVictims }: Pick<Usage, "oomKills" | "oomVictims">, command: KilledCommand): boolean {
    if (oomKills <= this.#explained) return false;
    const victim = oomVictims.find((one) => !this.#claimed.has(keyOf(one)) && fits(one, command));
    if (victim !== undefined) {
      const known = new Set(oomVictims.map(keyOf));
      for (const key of this.#claimed) if (!known.has(key)) this.#claimed.delete(key);
      this.#claimed.add(keyOf(victim));
    } else {
      // The kernel's log leaves some out when there are many at once, and may not be there to read at all.
      const silent = oomVictims.length < MAX_OOM_VICTIMS ? oomKills - oomVictims.length : 0;
      if (silent <= this.#unrecorded) return false;
      this.#unrecorded += 1;
    }
    this.#explained += 1;
    return true;
  }
}

function fits({ atMs, residentBytes }: OomVictim, { startedAtMs, maxRssKiB }: KilledCommand): boolean {
  return atMs >= startedAtMs - CLOCK_SLACK_MS && residentBytes <= maxRssKiB * 1024 + SIZE_SLACK_BYTES;
}

function keyOf({ program, atMs, residentBytes }: OomVictim): string {
  return `${atMs} ${residentBytes} ${program}`;
}
