import { SandboxError } from "#core/errors.ts";
import {
  type BlobDigest,
  blobDigest,
  canonicalJson,
  hexOf,
  isByteCount,
  isHexDigest,
  jsonObject,
  sha256Hex,
} from "../digest.ts";

/** What a blob is: the hashes of its data and of its list of chunks. Its canonical JSON names it. */
export interface BlobDescriptor {
  readonly version: 1;
  readonly sizeBytes: number;
  readonly pieceBytes: number;
  /** SHA-256 of each piece, hex; the last piece may be shorter. */
  readonly pieces: readonly string[];
  /** SHA-256 of the list of chunks, see `chunkLine`. */
  readonly chunksSha256: string;
}

/** Names of the files of one blob, in every store and while it is written. */
export const BLOB_FILES = { data: "data", chunks: "chunks", descriptor: "blob.json" } as const;

/** The unit in which data is fetched and checked. */
export const PIECE_BYTES = 2 ** 18;

/** Bounds what is read of a descriptor: a hash for each piece of 64 GiB. */
export const MAX_DESCRIPTOR_BYTES = 2 ** 25;

/** What is stored and hashed. */
export function descriptorText(descriptor: BlobDescriptor): string {
  return canonicalJson(descriptor);
}

/** The name of the blob that the descriptor describes. */
export function digestOfBlob(descriptor: BlobDescriptor): BlobDigest {
  return blobDigest(sha256Hex(descriptorText(descriptor)));
}

/**
 * Parses a stored descriptor and checks that it is the one `digest` names and that it describes a blob at all: whoever chose the
 * name chose the text too. Throws `Internal`.
 */
export function parseDescriptor(text: string, digest: BlobDigest): BlobDescriptor {
  if (sha256Hex(text) !== hexOf(digest)) throw damagedBlob(digest, "descriptor");
  const { sizeBytes, pieces, chunksSha256 } = jsonObject(text) ?? {};
  const isSound =
    isByteCount(sizeBytes) &&
    Array.isArray(pieces) &&
    pieces.length === Math.ceil(sizeBytes / PIECE_BYTES) &&
    pieces.every(isHexDigest) &&
    isHexDigest(chunksSha256);
  if (isSound) {
    const found = { version: 1, sizeBytes: Number(sizeBytes), pieceBytes: PIECE_BYTES, pieces, chunksSha256 } as const;
    if (descriptorText(found) === text) return found;
  }
  throw damagedBlob(digest, "descriptor");
}

/** One chunk of a blob: its bytes have this SHA-256 and start on this block. */
export interface BlobChunk {
  readonly digest: string;
  readonly block: number;
  readonly bytes: number;
}

/** A chunk as a line of the list that lies beside the data. */
export function chunkLine({ digest, block, bytes }: BlobChunk): string {
  return `${digest} ${block} ${bytes}\n`;
}

/** The chunks of a list, one at a time: a list may be long. */
export function* parseChunks(list: string): Iterable<BlobChunk> {
  for (let start = 0; start < list.length; ) {
    const end = list.indexOf("\n", start);
    const [digest = "", block, bytes] = list.slice(start, end).split(" ");
    yield { digest, block: Number(block), bytes: Number(bytes) };
    start = end === -1 ? list.length : end + 1;
  }
}

/** The error for a blob that is not what its name promises. */
export function damagedBlob(digest: BlobDigest, part: keyof typeof BLOB_FILES): SandboxError {
  return new SandboxError("Internal", `the ${part} of blob ${digest} is damaged in the store`, {
    hint: "remove the artifacts that use the blob and import them again",
    details: { blob: digest, part },
  });
}
