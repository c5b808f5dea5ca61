import { badInput } from "#core/tar/entry.ts";
import type { ImageBytes } from "./header.ts";

/** The header of version 3 as far as it is looked at. */
const HEADER_BYTES = 104;
const VERSION_2_BYTES = 72;
/** As QEMU has it: 512 bytes to 2 MiB. */
const [LEAST_CLUSTER_BITS, MOST_CLUSTER_BITS] = [9, 21];
/** Incompatible features by their bits. */
const FEATURES = { dirty: 1n, corrupt: 2n, dataFile: 4n, compression: 8n, extendedL2: 16n } as const;
const TAKEN = FEATURES.dirty | FEATURES.compression | FEATURES.extendedL2;
/** Extensions that name another file, or say that data is encrypted. */
const REFUSED_EXTENSIONS: ReadonlyMap<number, string> = new Map([
  [0xe2792aca, "names a backing file"],
  [0x44415441, "keeps its data in another file"],
  [0x0537be77, "is encrypted"],
]);
/** More is no header: QEMU writes five. */
const MOST_EXTENSIONS = 64;

/** Size of a qcow2 image's disk. Throws `InvalidArgument` for one that is not whole by itself. */
export function checkQcow2(image: ImageBytes): number {
  const head = image.read(0, HEADER_BYTES);
  if (head.length < VERSION_2_BYTES) throw damaged("its header is cut off");
  const version = head.readUInt32BE(4);
  if (version !== 2 && version !== 3) throw badInput(`a qcow2 image of version ${version} is not taken`);
  const clusterBits = head.readUInt32BE(20);
  if (clusterBits < LEAST_CLUSTER_BITS || clusterBits > MOST_CLUSTER_BITS)
    throw damaged(`clusters of 2^${clusterBits} bytes`);
  if (head.readBigUInt64BE(8) !== 0n || head.readUInt32BE(16) !== 0) throw refused("names a backing file");
  if (head.readUInt32BE(32) !== 0) throw refused("is encrypted");
  if (version === 3) checkVersion3(image, head, 2 ** clusterBits);
  else checkExtensions(image, VERSION_2_BYTES, 2 ** clusterBits);
  const size = head.readBigUInt64BE(24);
  return size > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(size);
}

function checkVersion3(image: ImageBytes, head: Buffer, clusterBytes: number): void {
  if (head.length < HEADER_BYTES) throw damaged("its header is cut off");
  const features = head.readBigUInt64BE(72);
  if ((features & FEATURES.dataFile) !== 0n) throw refused("keeps its data in another file");
  if ((features & FEATURES.corrupt) !== 0n) throw refused("is marked as damaged");
  if ((features & ~TAKEN) !== 0n) throw refused("has features that are not known here");
  const length = head.readUInt32BE(100);
  if (length < HEADER_BYTES || length > clusterBytes || length % 8 !== 0) throw damaged(`a header of ${length} bytes`);
  checkExtensions(image, length, clusterBytes);
}

function checkExtensions(image: ImageBytes, from: number, end: number): void {
  let at = from;
  for (let count = 0; count < MOST_EXTENSIONS && at + 8 <= end; count++) {
    const head = image.read(at, 8);
    if (head.length < 8) throw damaged("its extensions are cut off");
    const [type, length] = [head.readUInt32BE(0), head.readUInt32BE(4)];
    if (type === 0) return;
    const what = REFUSED_EXTENSIONS.get(type);
    if (what !== undefined) throw refused(what);
    at += 8 + Math.ceil(length / 8) * 8;
  }
  if (at + 8 <= end || at > end) throw damaged("its extensions do not end");
}

function refused(what: string): Error {
  return badInput(
    `the qcow2 image ${what}: only images that are whole by themselves are taken`,
    "make one: qemu-img convert -O qcow2 IMAGE NEW",
  );
}

function damaged(what: string): Error {
  return badInput(`the qcow2 image is damaged: ${what}`);
}
