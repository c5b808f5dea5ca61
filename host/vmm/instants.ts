import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { makeOwnedTemp, type OwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import type { Volume } from "#host/volume/volume.ts";

const PREFIX = "instant-";

/** Where what a sandbox was at one moment lies while somebody needs it: on the volume of disks, so that data can be shared. */
export class InstantDirs {
  readonly #plainDir: string;

  /** `plainDir` is taken where the volume has no place for what is shared. */
  constructor(plainDir: string) {
    this.#plainDir = plainDir;
  }

  /** A new one, of this process. */
  make(volume: Pick<Volume, "sharedDir">): OwnedTemp {
    return makeOwnedTemp(this.#parent(volume), PREFIX);
  }

  /** Removes those of processes that are dead. */
  async sweep(volume: Pick<Volume, "sharedDir">): Promise<void> {
    await sweepOwnedTemps(this.#parent(volume), PREFIX);
  }

  #parent({ sharedDir }: Pick<Volume, "sharedDir">): string {
    const dir = join(sharedDir ?? this.#plainDir, "instants");
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    return dir;
  }
}

/** What sandboxes were at one moment, each until all copies have begun with it or are gone. */
export class Instants<T> {
  readonly #kept = new Map<
    SandboxId,
    { readonly instant: T; readonly temp: OwnedTemp; readonly left: Set<SandboxId> }
  >();

  /** From here on the directory goes with the last of these copies. */
  keep(instant: T, temp: OwnedTemp, copies: readonly SandboxId[]): void {
    const kept = { instant, temp, left: new Set(copies) };
    for (const id of copies) this.#kept.set(id, kept);
  }

  /** What a copy begins with. Throws `SandboxLost` for what is no copy, or has begun already. */
  of(id: SandboxId): T {
    const kept = this.#kept.get(id);
    if (kept === undefined) throw new SandboxError("SandboxLost", `what ${id} is a copy of is gone`);
    return kept.instant;
  }

  /** The copy needs its instant no more: it has begun, or never will. Safe twice, and for what is no copy. */
  async release(id: SandboxId): Promise<void> {
    const kept = this.#kept.get(id);
    this.#kept.delete(id);
    kept?.left.delete(id);
    if (kept?.left.size === 0) await kept.temp[Symbol.asyncDispose]();
  }
}
