import { existsSync, statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import { type PackedDiff, type Packing, type PackOptions, SCRUB_RULES } from "#core/packing.ts";
import type { SandboxSpec } from "#core/sandbox.ts";
import { type ComputerSpec, FIRMWARE } from "#host/vmm/computer.ts";
import { isAlive } from "#host/vmm/qemu/process.ts";
import { diskParts } from "#host/vmm/qemu/qcow2-bytes.ts";
import { roomError } from "#host/volume/room-error.ts";
import type { LayerStore } from "#images/store.ts";
import { type FileParts, storeFiles, VM_IMAGE_FILES } from "#images/vm-image/import.ts";
import type { CopyParts } from "./copies.ts";
import { copyWritten, WRITTEN_FILES } from "./disk.ts";
import type { LiveComputer } from "./live.ts";

/** What packing needs of the backend. */
export interface PackingParts extends CopyParts {
  readonly store: LayerStore;
  /** Of the disk that a sandbox has; 0: it has none. */
  diskBytes(spec: SandboxSpec): Promise<number>;
}

/** A system writes out what it holds back within this, also on a slow disk. */
const SYNC_MS = 60_000;

//   its system writes out ─► hold still ─► copy of the disk ─► let go ─► a layer with the plain bytes of the disk
//
// The layer is an image as any other: what the disk began with is in it, and the store has that once.

/** Makes images of the disks that computers have. */
export class ComputerPacking implements Packing {
  readonly #parts: PackingParts;

  constructor(parts: PackingParts) {
    this.#parts = parts;
  }

  async pack(spec: SandboxSpec, options: PackOptions, signal: AbortSignal): Promise<PackedDiff> {
    checkOptions(options);
    const { volume } = await this.#parts.ground();
    if (!volume.list().has(spec.id)) throw new SandboxError("NotFound", `${spec.id} has no disk`);
    const sizeBytes = await this.#parts.diskBytes(spec);
    if (sizeBytes === 0) throw new SandboxError("FailedPrecondition", `${spec.id} has a CD and no disk`);
    const { spec: planned } = await this.#parts.computer(spec);
    try {
      await using temp = this.#parts.instants.make(volume);
      const frozenMs = await this.#copyDisk(spec, temp.path, signal);
      await using files = new AsyncDisposableStack();
      const opened = async (path: string) => files.use(await open(path, "r"));
      const stored = await this.#store(planned, { dir: temp.path, sizeBytes, opened }, signal);
      return diffOf(spec, { ...stored, frozenMs });
    } catch (error) {
      throw roomError(error);
    }
  }

  async #store(
    { disk, kernel }: ComputerSpec,
    from: { readonly dir: string; readonly sizeBytes: number; readonly opened: (path: string) => Promise<FileHandle> },
    signal: AbortSignal,
  ) {
    const { dir, sizeBytes, opened } = from;
    const file = await opened(join(dir, WRITTEN_FILES.disk));
    const base = disk?.base === undefined ? undefined : await opened(disk.base);
    const whole: FileParts = { sizeBytes, parts: diskParts({ file, base }, sizeBytes) };
    const files = {
      [VM_IMAGE_FILES.disk]: whole,
      ...(kernel && { [VM_IMAGE_FILES.kernel]: kernel.image, [VM_IMAGE_FILES.initramfs]: kernel.initramfs }),
      ...variablesIn(dir),
    };
    const { layers, sizeBytes: storedBytes } = await storeFiles(this.#parts.store, files, signal);
    return { layers, storedBytes, entries: Object.keys(files).length, dataBytes: sizeBytes };
  }

  /** Resolves with how long it was held for that. */
  async #copyDisk(spec: SandboxSpec, dir: string, signal: AbortSignal): Promise<number> {
    const { runDirs, volume } = await this.#parts.ground();
    const { upperDir } = volume.openUpper(spec.id);
    const process = runDirs.readProcess(spec.id);
    if (process === undefined || !isAlive(process)) {
      await copyWritten(upperDir, dir);
      return 0;
    }
    const live = await this.#parts.reach(spec.id, process);
    await writeOut(live, signal);
    const held = await live.hold(signal);
    const startedMs = performance.now();
    try {
      await copyWritten(upperDir, dir);
    } finally {
      await held.letGo();
    }
    return performance.now() - startedMs;
  }
}

/** Nobody can look into the files of a disk: what cannot be left out must not be asked for, nor be expected. */
function checkOptions({ exclude, keep, consistent }: PackOptions): void {
  const refuse = (message: string, hint: string) => {
    throw new SandboxError("FailedPrecondition", `a full VM is packed with its whole disk: ${message}`, { hint });
  };
  if (exclude.length > 0) refuse("nothing can be excluded", "remove it inside first");
  if (!consistent) refuse("it is always held still for a moment", "leave out consistent");
  const missing = SCRUB_RULES.filter((rule) => !keep.includes(rule));
  if (missing.length > 0) {
    refuse(
      `${missing.join(" and ")} cannot be left out of it`,
      `remove them inside, or say that they may stay: ${missing.map((rule) => `--keep ${rule}`).join(" ")}`,
    );
  }
}

/** One without an agent cannot be told to; what is on its disk is what its system has written. */
async function writeOut(live: LiveComputer, signal: AbortSignal): Promise<void> {
  const late = AbortSignal.timeout(SYNC_MS);
  try {
    await abortable(live.sync(), AbortSignal.any([signal, late]));
  } catch (error) {
    if (!late.aborted || signal.aborted) throw error;
    throw new SandboxError("Unavailable", `the system did not write out what it holds within ${SYNC_MS / 1_000} s`, {
      cause: error,
      hint: "try again, or look at its screen",
    });
  }
}

/** What its firmware has kept. A file of another size than firmware has is no such thing. */
function variablesIn(dir: string): Readonly<Record<string, string>> {
  const path = join(dir, WRITTEN_FILES.variables);
  const isThere = existsSync(path) && statSync(path).size === statSync(FIRMWARE.variables).size;
  return isThere ? { [VM_IMAGE_FILES.variables]: path } : {};
}

interface Stored {
  readonly layers: PackedDiff["layers"];
  readonly storedBytes: number;
  readonly entries: number;
  readonly dataBytes: number;
  readonly frozenMs: number;
}

function diffOf({ config, computer }: SandboxSpec, stored: Stored): PackedDiff {
  const { layers, storedBytes, entries, dataBytes, frozenMs } = stored;
  const [layer] = layers;
  if (layer === undefined) throw new Error("an image without a layer");
  const shape = computer === undefined ? {} : { computer };
  const skipped = { excluded: 0, scrubbed: 0, special: 0 };
  return {
    layers,
    config: { ...config, ...shape },
    sizeBytes: storedBytes,
    layer,
    entries,
    dataBytes,
    frozenMs,
    skipped,
  };
}
