import { SandboxError } from "#core/errors.ts";
import { type MachineDisk, type MachineRegion, MOST_DISKS } from "#host/vmm/vmm.ts";

/** Which device of a machine is what. Blobs that layers share are one device. */
export interface DiskPlan {
  readonly disks: readonly MachineDisk[];
  readonly regions: readonly MachineRegion[];
  /** What the guest knows by these names: serial numbers, or regions by their order. Of each layer the metadata and the blobs, lowest layer first. */
  readonly layers: readonly (readonly string[])[];
  readonly upper: string;
}

/** The disk that a sandbox writes to. */
export const UPPER_DISK = "disk0";
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
    regions: [],
    layers: layers.map((parts) => parts.map((file) => serials.get(file) ?? "")),
    upper: UPPER_DISK,
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
