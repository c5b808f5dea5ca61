import { createHash } from "node:crypto";

/** Of every piece of such a file. */
export const PATTERN_PIECE_BYTES = 2 ** 16;

/** A piece of a file of the pattern filler: no two are alike, and none is zeros. */
export function patternPiece(name: string, piece: number): Buffer {
  return Buffer.alloc(PATTERN_PIECE_BYTES, createHash("sha256").update(`${name} ${piece}`).digest());
}

/** Hex of the SHA-256 of a range of whole pieces. */
export function patternSha256(name: string, first: number, end: number): string {
  const hash = createHash("sha256");
  for (let piece = first; piece < end; piece++) hash.update(patternPiece(name, piece));
  return hash.digest("hex");
}
