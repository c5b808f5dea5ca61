import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay, setImmediate } from "node:timers/promises";
import { openDirectory, snapshotSubvolume, subvolumesAfter } from "./btrfs.ts";

/** A snapshot is mostly taken within these looks. */
const QUICK_LOOKS = 50;
const PAUSE_MS = 1;

/** How to copy a subvolume. */
export interface CopyOptions {
  readonly readOnly: boolean;
  /** Called once what is written to the source is not in the copy any more: earlier than the disk has that. Perhaps not, when it fails. */
  readonly taken?: (() => void) | undefined;
}

/**
 * Copies of subvolumes in a directory of their own: making one locks its directory for as long as the disk takes. For the same
 * reason one is made after the other.
 */
export class Copies {
  readonly #dir: string;
  #last: Promise<unknown> = Promise.resolve();
  /** The youngest subvolume that was ever seen. */
  #youngest = 0n;

  /** `dir` is made when it is missing. It lies in the top of a btrfs. */
  constructor(dir: string) {
    this.#dir = dir;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
  }

  /** Paths of all there are. */
  list(): readonly string[] {
    return readdirSync(this.#dir).map((name) => join(this.#dir, name));
  }

  /** Copies the subvolume at `source`; resolves with the path of the copy. Rejects as `snapshotSubvolume` does; there is none then. */
  make(source: string, options: CopyOptions): Promise<string> {
    const made = this.#last.then(() => this.#make(source, options));
    this.#last = made.catch(() => undefined);
    return made;
  }

  async #make(source: string, { readOnly, taken }: CopyOptions): Promise<string> {
    const name = randomBytes(8).toString("hex");
    using from = openDirectory(source);
    using into = openDirectory(this.#dir);
    this.#sees(into.fd, name);
    const made = snapshotSubvolume(into.fd, name, { fd: from.fd, readOnly });
    try {
      if (taken === undefined) return join(this.#dir, name);
      await either(made, () => this.#sees(into.fd, name));
      taken();
      return join(this.#dir, name);
    } finally {
      // The descriptors are its until then.
      await made;
    }
  }

  /** Whether a subvolume of this name was made since the last look. */
  #sees(fd: number, name: string): boolean {
    let isThere = false;
    for (let page = subvolumesAfter(fd, this.#youngest); page.length > 0; page = subvolumesAfter(fd, this.#youngest)) {
      isThere ||= page.some((one) => one.name === name);
      this.#youngest = page.at(-1)?.id ?? this.#youngest;
    }
    return isThere;
  }
}

/** Until `work` is over, one way or the other, or `isTrue`. */
async function either(work: Promise<unknown>, isTrue: () => boolean): Promise<void> {
  let isOver = false;
  const end = () => {
    isOver = true;
  };
  work.then(end, end);
  for (let looks = 0; !isOver && !isTrue(); looks += 1) {
    if (looks < QUICK_LOOKS) await setImmediate();
    else await delay(PAUSE_MS);
  }
}
