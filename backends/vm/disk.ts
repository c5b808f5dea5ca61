import { existsSync, lstatSync, statSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { ComputerShape, SandboxSpec } from "#core/sandbox.ts";
import { type ComputerSpec, FIRMWARE } from "#host/vmm/computer.ts";
import { copyFileSparse } from "#host/vmm/memory.ts";
import { makeQcow2 } from "#host/vmm/qemu/qcow2.ts";
import type { Volume } from "#host/volume/volume.ts";
import { VM_IMAGE_FILES } from "#images/vm-image/import.ts";

const MIB = 1024 * 1024;

/** What a computer starts from and writes to. */
export type Storage = Pick<ComputerSpec, "disk" | "cdrom" | "variables" | "kernel">;

/** What a computer is made on this node: the image that it began with, mounted at a directory, and its shape. */
export interface Origin {
  readonly imageDir: string;
  readonly shape: ComputerShape;
}

/**
 * Makes what a computer writes to, over the image that is mounted at a directory. What it throws for leaves nothing: `InvalidArgument` for a disk smaller
 * than the image, `StorageFull`.
 */
export async function makeStorage(volume: Volume, spec: SandboxSpec, origin: Origin): Promise<Storage> {
  const image = readImage(origin.imageDir);
  const diskBytes = sizeOf(spec, image);
  const { upperDir } = volume.createUpper(spec.id, undefined);
  try {
    const storage = storageIn(upperDir, spec, origin);
    if (storage.variables !== undefined) await copyFileSparse(image.variables ?? FIRMWARE.variables, storage.variables);
    if (storage.disk !== undefined) makeQcow2(storage.disk.file, diskBytes);
    return storage;
  } catch (error) {
    await volume.removeUpper(spec.id);
    throw error;
  }
}

/** What was made in that directory. */
export function storageIn(
  upperDir: string,
  spec: Pick<SandboxSpec, "resources">,
  { imageDir, shape }: Origin,
): Storage {
  const image = readImage(imageDir);
  const disk = sizeOf(spec, image) === 0 ? undefined : { file: join(upperDir, WRITTEN_FILES.disk), base: image.disk };
  const variables = shape.firmware === "uefi" ? join(upperDir, WRITTEN_FILES.variables) : undefined;
  return { cdrom: image.cdrom, variables, kernel: image.kernel, disk };
}

/** What a computer writes to, by the names that it has in its directory. */
export const WRITTEN_FILES = { disk: "disk.qcow2", variables: "variables" } as const;

/** Makes a directory have what a computer wrote in another: shares its data where the file system can. What it throws for may leave some of it. */
export async function copyWritten(from: string, to: string): Promise<void> {
  for (const name of Object.values(WRITTEN_FILES)) {
    if (existsSync(join(from, name))) await copyFileSparse(join(from, name), join(to, name));
  }
}

interface Image {
  readonly disk: string | undefined;
  readonly cdrom: string | undefined;
  readonly kernel: ComputerSpec["kernel"];
  /** What the firmware of the sandbox that it was made of has kept, such as what to start. */
  readonly variables: string | undefined;
}

function readImage(dir: string): Image {
  // A link would lead out of the layer, and QEMU opens what it begins with as root: whoever made a layer elsewhere may have put one there.
  const fileOf = (name: string) => {
    const path = join(dir, name);
    return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true ? path : undefined;
  };
  const [kernel, initramfs] = [fileOf(VM_IMAGE_FILES.kernel), fileOf(VM_IMAGE_FILES.initramfs)];
  const image = {
    disk: fileOf(VM_IMAGE_FILES.disk),
    cdrom: fileOf(VM_IMAGE_FILES.cdrom),
    kernel: kernel === undefined || initramfs === undefined ? undefined : { image: kernel, initramfs },
    variables: fileOf(VM_IMAGE_FILES.variables),
  };
  if (image.disk !== undefined || image.cdrom !== undefined) return image;
  throw new SandboxError("InvalidArgument", "the layer is no image of a disk", { hint: "import it again with --vm" });
}

/** Bytes of the disk that a sandbox has over an image that is mounted at a directory; 0: a CD without a disk beside it. */
export function diskBytes(spec: Pick<SandboxSpec, "resources">, imageDir: string): number {
  return sizeOf(spec, readImage(imageDir));
}

function sizeOf({ resources: { diskMiB } }: Pick<SandboxSpec, "resources">, { disk }: Image): number {
  const imageBytes = disk === undefined ? 0 : statSync(disk).size;
  if (diskMiB === undefined) return imageBytes;
  if (diskMiB * MIB >= imageBytes) return diskMiB * MIB;
  const needed = Math.ceil(imageBytes / MIB);
  throw new SandboxError("InvalidArgument", `diskMiB ${diskMiB} is below the ${needed} that the image has`, {
    details: { field: "diskMiB" },
  });
}
