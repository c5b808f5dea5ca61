import { SandboxError } from "#core/errors.ts";
import { badInput } from "#core/tar/entry.ts";
import { checkQcow2 } from "./qcow2-header.ts";
import { checkVmdk } from "./vmdk-header.ts";

/** Gives bytes of a file: fewer than asked for at its end. */
export interface ImageBytes {
  readonly sizeBytes: number;
  read(offset: number, length: number): Buffer;
}

/** What an image of a disk is. */
export interface ImageFacts {
  readonly format: "qcow2" | "vmdk" | "raw" | "iso";
  /** Of the disk, holes included. */
  readonly virtualBytes: number;
}

/** A sector: nothing smaller starts. */
const SECTOR_BYTES = 512;
/** As much as an import takes of any files, holes included: `DEFAULT_LIMITS.dataBytes`. */
const LARGEST_DISK_BYTES = 2 ** 36;
/** Where ISO 9660 has its first descriptor, and the word in it. */
const ISO_DESCRIPTOR = 16 * 2048;
const ISO_WORD = "CD001";
const BOOT_SIGNATURE = 0xaa55;
const BOOT_SIGNATURE_OFFSET = 510;

/** Formats that are known and not taken, by what they begin with. */
const OTHERS: readonly (readonly [name: string, at: number, word: string])[] = [
  ["an encrypted (LUKS) image", 0, "LUKS\xba\xbe"],
  ["a VHDX image", 0, "vhdxfile"],
  ["a VHD image", 0, "conectix"],
  ["a QED image", 0, "QED\0"],
  ["a VDI image", 64, "\x7f\x10\xda\xbe"],
  ["an old VMDK image", 0, "COWD"],
  ["the description of a VMDK whose data lies in other files", 0, "# Disk DescriptorFile"],
];

/**
 * What an image is, by its header alone, which is read in bounded memory before any other program sees the file. Throws `InvalidArgument` for
 * what is no image, is encrypted, or names other files; `TooLarge` for a disk beyond the limit.
 */
export function inspectImage(image: ImageBytes): ImageFacts {
  if (image.sizeBytes < SECTOR_BYTES) {
    throw badInput(`an image of ${image.sizeBytes} bytes is too small to be a disk`);
  }
  const facts = factsOf(image);
  if (facts.virtualBytes < SECTOR_BYTES)
    throw badInput(`a disk of ${facts.virtualBytes} bytes is too small to start from`);
  if (facts.virtualBytes > LARGEST_DISK_BYTES) {
    throw new SandboxError(
      "TooLarge",
      `the image's disk has ${facts.virtualBytes} bytes, more than ${LARGEST_DISK_BYTES}`,
      {
        hint: "shrink it, and give sandboxes more with --disk",
      },
    );
  }
  return facts;
}

function factsOf(image: ImageBytes): ImageFacts {
  const head = image.read(0, SECTOR_BYTES);
  if (head.readUInt32BE(0) === 0x514649fb) return { format: "qcow2", virtualBytes: checkQcow2(image) };
  if (head.toString("latin1", 0, 4) === "KDMV") return { format: "vmdk", virtualBytes: checkVmdk(image) };
  for (const [name, at, word] of OTHERS) {
    if (head.toString("latin1", at, at + word.length) !== word) continue;
    throw badInput(`this is ${name}, which is not taken`, "convert it first: qemu-img convert -O qcow2 IMAGE NEW");
  }
  if (image.read(ISO_DESCRIPTOR + 1, ISO_WORD.length).toString("latin1") === ISO_WORD) {
    return { format: "iso", virtualBytes: image.sizeBytes };
  }
  if (head.readUInt16LE(BOOT_SIGNATURE_OFFSET) === BOOT_SIGNATURE) {
    return { format: "raw", virtualBytes: image.sizeBytes };
  }
  throw badInput(
    "this is no image of a disk: it is neither qcow2 nor VMDK nor ISO, and has no boot sector",
    "a compressed image is unpacked first",
  );
}
