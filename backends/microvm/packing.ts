import { existsSync } from "node:fs";
import { open } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";
import type { PackedDiff, Packing, PackOptions } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import type { InstantDirs } from "#host/vmm/instants.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import { roomError } from "#host/volume/room-error.ts";
import { Ext4Disk } from "#images/ext4/disk.ts";
import { walkExt4 } from "#images/ext4/walk.ts";
import { diffOf } from "#images/pack/diff.ts";
import { checkPatterns, packUpper } from "#images/pack/pack.ts";
import type { LayerStore } from "#images/store.ts";
import { diskIn, diskPath } from "./disk.ts";
import { whileHeld } from "./held.ts";
import { ownIdentity } from "./own-identity.ts";
import type { PauseParts } from "./pauses.ts";

/** What packs need of the backend. */
export interface PackingParts extends Pick<PauseParts, "ground" | "guest"> {
  readonly instants: InstantDirs;
  readonly store: LayerStore;
}

/** The directory of a sandbox's disk that an overlay writes to: guest/agent/machine_disks.c. */
const UPPER = "upper";

//   write out ─► hold still ─► lock the file system ─► copy of the disk ─► let go ─► layer of the copy
//
// The copy is read by this process, and mounted by no kernel: what is on it, a guest has written.

/** Packs machines, by their disks. */
export class MachinePacking implements Packing {
  readonly #parts: PackingParts;

  constructor(parts: PackingParts) {
    this.#parts = parts;
  }

  async pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    checkPatterns(options.exclude);
    const { store, instants } = this.#parts;
    const { volume } = await this.#parts.ground();
    const disk = diskPath(volume.openUpper(spec.id));
    if (!existsSync(disk)) throw new SandboxError("NotFound", `${spec.id} has no disk`);
    await using instant = instants.make(volume);
    const copy = diskIn(instant.path);
    const frozenMs = await this.#copy(spec, { from: disk, to: copy, consistent: options.consistent }, signal).catch(
      (error: unknown) => Promise.reject(roomError(error)),
    );
    await using file = await open(copy, "r");
    const ext4 = await Ext4Disk.open(file, signal);
    const isOwn = await ownIdentity(ext4, { store, layers: spec.layers, upper: UPPER });
    const packed = await packUpper({
      ...{ store, options, signal, isOwn },
      walk: (visitor) => walkExt4(ext4, UPPER, visitor),
    });
    return await diffOf(store, spec, { ...packed, frozenMs });
  }

  /** Resolves with how long somebody was held for it. The disk of one that does not run is as it is. */
  async #copy(
    { id }: SandboxSpec,
    { from, to, consistent }: { readonly from: string; readonly to: string; readonly consistent: boolean },
    signal: AbortSignal,
  ): Promise<number> {
    const { runDirs } = await this.#parts.ground();
    const process = runDirs.readProcess(id);
    if (process === undefined || !isAlive(process)) {
      await copyFileSparse(from, to);
      return 0;
    }
    const guest = await this.#parts.guest(id, process, signal);
    let startedMs = performance.now();
    const quiet = guest.quiet({ consistent, written: () => (startedMs = performance.now()) });
    return await whileHeld(quiet, signal, async ({ letGo }) => {
      await copyFileSparse(from, to);
      await letGo();
      return performance.now() - startedMs;
    });
  }
}
