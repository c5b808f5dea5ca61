import { SandboxError } from "#core/errors.ts";
import { type MachineDisk, MOST_DISKS } from "#host/vmm/vmm.ts";

/** Which disk of a machine is what. Blobs that layers share are one disk. */
export interface DiskPlan {
  readonly disks: readonly MachineDisk[];
  /** Serial numbers of each layer's metadata and blobs, lowest layer first. */
  readonly layers: readonly (readonly string[])[];
  readonly upper: string;
}

/** Machines have places for so many disks; each size has templates of its own. */
const SIZES = [8, 32, 96, MOST_DISKS];

/** The places of a machine: the first is the upper's. Files are those of the layers, metadata first. Refuses more than there are places. */
export function planDisks(layers: readonly (readonly string[])[], upper: string): DiskPlan {
  const files = [...new Set(layers.flat())];
  const size = SIZES.find((candidate) => candidate > files.length);
  if (size === undefined) {
    const most = MOST_DISKS - 1;
    throw new SandboxError(
      "FailedPrecondition",
      `a microVM takes ${most} files of layers, and these have ${files.length}`,
      {
        hint: "use fewer layers, or collapse them",
      },
    );
  }
  const serials = new Map(files.map((file, index) => [file, `disk${index + 1}`]));
  return {
    disks: emptyDisks(size).map((disk, index) => ({ ...disk, file: index === 0 ? upper : files[index - 1] })),
    layers: layers.map((parts) => parts.map((file) => serials.get(file) ?? "")),
    upper: "disk0",
  };
}

/** So many places without files. */
export function emptyDisks(size: number): readonly MachineDisk[] {
  return Array.from({ length: size }, (_, index) => ({
    serial: `disk${index}`,
    file: undefined,
    access: index === 0 ? "write" : "read",
  }));
}
