import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import type { BlobDescriptor } from "../blobs/descriptor.ts";
import { type BlobDigest, canonicalJson, hexOf, isHexDigest, jsonObject, sha256Hex } from "../digest.ts";
import { damagedObject } from "./object-store.ts";

/**
 * The data of a blob in frames: each piece compressed for itself, so that any of them can be had alone. A frame that is as long as its
 * piece is the piece.
 *
 *     blobs/<hex>/frames-<hex>   the frames, one behind the other; named by its SHA-256, so that two pushers never mix theirs
 *     blobs/<hex>/frames.json    { version: 1, tableSha256, table: { sha256, sizeBytes, frames: [bytes, …] } }
 */
export interface FrameTable {
  /** Of all frames together, and a part of their object's name. */
  readonly sha256: string;
  /** Of the blob. */
  readonly sizeBytes: number;
  /** Bytes of each frame. */
  readonly frames: readonly number[];
}

/** Bounds what is read of a table: a number of six digits for each piece of 64 GiB. */
export const MAX_TABLE_BYTES = 2 ** 21;

/** Beyond this, a few per cent of the size cost twice the time of a processor or more. */
const LEVEL = 3;
/** No piece is larger, and no frame may ask for more memory. */
const WINDOW_LOG = 18;
const MIN_OUTPUT_BYTES = 64;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Where the table of a blob lies in an object store. */
export function tableKey(digest: BlobDigest): string {
  return `blobs/${hexOf(digest)}/frames.json`;
}

/** Where the frames of a table lie. */
export function framesKey(digest: BlobDigest, { sha256 }: Pick<FrameTable, "sha256">): string {
  return `blobs/${hexOf(digest)}/frames-${sha256}`;
}

/** Of the object with the frames. */
export function framesBytes({ frames }: FrameTable): number {
  return frames.reduce((sum, bytes) => sum + bytes, 0);
}

/** What is stored. */
export function tableText(table: FrameTable): string {
  return canonicalJson({ version: 1, table, tableSha256: sha256Hex(canonicalJson(table)) });
}

/** Throws `Internal` for a text that is no table of frames for such a blob, whoever wrote it. */
export function parseTable(text: string, digest: BlobDigest, descriptor: BlobDescriptor): FrameTable {
  const { version, table, tableSha256 } = jsonObject(text) ?? {};
  const key = tableKey(digest);
  if (typeof version === "number" && version !== 1) throw damagedObject(key, `its version is ${version}, not 1`);
  if (version === 1 && isTable(table, descriptor) && sha256Hex(canonicalJson(table)) === tableSha256) return table;
  throw damagedObject(key, "it is no table of frames for the blob");
}

/** The plain bytes of a piece of a blob. */
export function pieceLength({ sizeBytes, pieceBytes }: BlobDescriptor, piece: number): number {
  return Math.min(pieceBytes, sizeBytes - piece * pieceBytes);
}

/** The frame of a piece. */
export async function frameOf(piece: Uint8Array): Promise<Uint8Array> {
  const { ZSTD_c_compressionLevel, ZSTD_c_windowLog } = constants;
  const frame = await compress(piece, {
    params: { [ZSTD_c_compressionLevel]: LEVEL, [ZSTD_c_windowLog]: WINDOW_LOG },
    // What a decoder knows beforehand it need not keep a window for.
    pledgedSrcSize: piece.length,
    chunkSize: Math.max(MIN_OUTPUT_BYTES, piece.length),
  });
  return frame.length < piece.length ? frame : piece;
}

/** What a frame says the piece of `length` bytes is; `undefined` for one that does not end up with so many. Takes no more memory than that. */
export async function pieceOf(frame: Uint8Array, length: number): Promise<Uint8Array | undefined> {
  if (frame.length === length) return frame;
  try {
    const piece = await decompress(frame, {
      params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG },
      maxOutputLength: length,
      chunkSize: Math.max(MIN_OUTPUT_BYTES, length),
    });
    return piece.length === length ? piece : undefined;
  } catch {
    // Whatever is wrong with it: it came from a store.
    return undefined;
  }
}

function isTable(table: unknown, descriptor: BlobDescriptor): table is FrameTable {
  if (typeof table !== "object" || table === null || Object.keys(table).length !== 3) return false;
  if (!("sha256" in table && "sizeBytes" in table && "frames" in table)) return false;
  const { sha256, sizeBytes, frames } = table;
  return (
    isHexDigest(sha256) &&
    sizeBytes === descriptor.sizeBytes &&
    Array.isArray(frames) &&
    frames.length === descriptor.pieces.length &&
    frames.every((bytes, piece) => isFrameLength(bytes, pieceLength(descriptor, piece)))
  );
}

function isFrameLength(bytes: unknown, length: number): boolean {
  return Number.isInteger(bytes) && Number(bytes) > 0 && Number(bytes) <= length;
}
