import { badInput } from "#core/tar/entry.ts";
import type { ImageBytes } from "./header.ts";

const HEADER_BYTES = 79;
const SECTOR_BYTES = 512;
/** QEMU reads the description there, wherever the header says that it lies. */
const FIXED_DESCRIPTION = SECTOR_BYTES;
const MOST_DESCRIPTION_BYTES = 64 * 1024;
/** Of the header at the end of a stream-optimised image: footer, then a sector that says so. */
const FOOTER_BYTES = 2 * SECTOR_BYTES;
/** Says that the header at the end counts. */
const AT_END = 0xffff_ffff_ffff_ffffn;

/** Size of a sparse VMDK's disk. Throws `InvalidArgument` for one that is not whole by itself. */
export function checkVmdk(image: ImageBytes): number {
  const first = headerAt(image, 0);
  const header = first.grainDirectory === AT_END ? headerAt(image, image.sizeBytes - FOOTER_BYTES) : first;
  // QEMU looks for other files when there is no size, in either header.
  if (first.sectors === 0n || header.sectors === 0n) throw refused("keeps its data in other files");
  for (const { descriptionAt, descriptionBytes } of [
    first,
    header,
    { descriptionAt: FIXED_DESCRIPTION, descriptionBytes: MOST_DESCRIPTION_BYTES },
  ]) {
    checkDescription(image, descriptionAt, descriptionBytes);
  }
  const bytes = header.sectors * BigInt(SECTOR_BYTES);
  return bytes > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(bytes);
}

interface VmdkHeader {
  readonly sectors: bigint;
  readonly grainDirectory: bigint;
  readonly descriptionAt: number;
  readonly descriptionBytes: number;
}

function headerAt(image: ImageBytes, offset: number): VmdkHeader {
  const head = offset < 0 ? Buffer.alloc(0) : image.read(offset, HEADER_BYTES);
  if (head.length < HEADER_BYTES || head.toString("latin1", 0, 4) !== "KDMV") throw damaged("its header is cut off");
  const version = head.readUInt32LE(4);
  if (version < 1 || version > 3) throw badInput(`a VMDK of version ${version} is not taken`);
  return {
    sectors: head.readBigUInt64LE(12),
    grainDirectory: head.readBigUInt64LE(56),
    descriptionAt: sectorsToBytes(head.readBigUInt64LE(28)),
    descriptionBytes: sectorsToBytes(head.readBigUInt64LE(36)),
  };
}

function checkDescription(image: ImageBytes, at: number, bytes: number): void {
  if (at === 0 || bytes === 0) return;
  const text = image.read(at, Math.min(bytes, MOST_DESCRIPTION_BYTES)).toString("latin1");
  if (/parentFileNameHint/i.test(text)) throw refused("names a backing file");
  const parent = /parentCID\s*=\s*([0-9a-f]+)/i.exec(text)?.[1];
  if (parent !== undefined && parent.toLowerCase() !== "ffffffff") throw refused("names a backing file");
  if (/encryption\.keySafe/i.test(text)) throw refused("is encrypted");
}

function sectorsToBytes(sectors: bigint): number {
  const bytes = sectors * BigInt(SECTOR_BYTES);
  if (bytes > BigInt(Number.MAX_SAFE_INTEGER)) throw damaged("its parts lie beyond any file");
  return Number(bytes);
}

function refused(what: string): Error {
  return badInput(
    `the VMDK ${what}: only images that are whole by themselves are taken`,
    "make one: qemu-img convert -O qcow2 IMAGE NEW",
  );
}

function damaged(what: string): Error {
  return badInput(`the VMDK is damaged: ${what}`);
}
