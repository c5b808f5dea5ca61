import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { makeOwnedTemp, type OwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import type { Volume } from "#host/volume/volume.ts";

const PREFIX = "instant-";

/** Where what a sandbox was at one moment lies while somebody needs it: on the volume of disks, so that data can be shared. */
export class InstantDirs {
  readonly #plainDir: string;
  #swept: Promise<void> | undefined;

  /** `plainDir` is taken where the volume has no place for what is shared. */
  constructor(plainDir: string) {
    this.#plainDir = plainDir;
  }

  /** A new one. Sweeps what a dead process left. */
  async make({ sharedDir }: Pick<Volume, "sharedDir">): Promise<OwnedTemp> {
    const dir = join(sharedDir ?? this.#plainDir, "instants");
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#swept ??= sweepOwnedTemps(dir, PREFIX);
    await this.#swept;
    return makeOwnedTemp(dir, PREFIX);
  }
}

/** The disk of an instant. */
export function diskIn(dir: string): string {
  return join(dir, "disk");
}
