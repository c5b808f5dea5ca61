import { SandboxError } from "#core/errors.ts";
import type { PieceSet } from "#host/lazy/pieces.ts";
import { type BlobDigest, hexOf, sha256Hex } from "../digest.ts";
import { type ObjectStore, readObject } from "../store/object-store.ts";

/** Pieces from `first` up to and without `end`. */
export type PieceRange = readonly [first: number, end: number];

/** More than a blob of 64 GiB can have. */
const MAX_TRACE_BYTES = 2 ** 22;
/** A list of much of the blob is no use: it would be fetched whole. */
const MAX_SHARE = 0.25;
/** Small blobs may be listed whole. */
const MIN_PIECES = 64;

/**
 * What readers of a blob touched in earlier runs, kept beside it in the store as a hint for the next. Whoever can write to the store
 * can write it: it costs fetches at the worst.
 */
export async function readTrace(
  store: ObjectStore,
  digest: BlobDigest,
  pieces: number,
  signal: AbortSignal,
): Promise<readonly PieceRange[]> {
  try {
    const text = await readObject(store, traceKey(digest), MAX_TRACE_BYTES, signal);
    return parseTrace(text.toString("utf8"), pieces);
  } catch (error) {
    if (error instanceof SandboxError && (error.kind === "NotFound" || error.kind === "Internal")) return [];
    throw error;
  }
}

/** Keeps the ranges for later runs, in place of what was there. */
export async function writeTrace(
  store: ObjectStore,
  digest: BlobDigest,
  ranges: readonly PieceRange[],
  signal: AbortSignal,
): Promise<void> {
  const bytes = Buffer.from(JSON.stringify({ version: 1, pieces: ranges }));
  const content = { sizeBytes: bytes.length, sha256: sha256Hex(bytes), open: () => oneOf(bytes) };
  await store.put(traceKey(digest), content, signal);
}

/** What was touched now or earlier; `undefined` when that says nothing new, or too much to be of use. */
export function mergeTraces(earlier: readonly PieceRange[], touched: PieceSet): readonly PieceRange[] | undefined {
  const wanted = new Set<number>();
  for (const [first, end] of earlier) for (let piece = first; piece < end; piece++) wanted.add(piece);
  const known = wanted.size;
  for (let piece = 0; piece < touched.count; piece++) if (touched.has(piece)) wanted.add(piece);
  if (wanted.size === known || wanted.size > Math.max(MIN_PIECES, touched.count * MAX_SHARE)) return undefined;
  const ranges: [number, number][] = [];
  for (const piece of [...wanted].sort((left, right) => left - right)) {
    const last = ranges.at(-1);
    if (last?.[1] === piece) last[1] = piece + 1;
    else ranges.push([piece, piece + 1]);
  }
  return ranges;
}

/** Nothing for text that is no list of ranges of such a blob. */
function parseTrace(text: string, pieces: number): readonly PieceRange[] {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return [];
  }
  const ranges = typeof found === "object" && found !== null && "pieces" in found ? found.pieces : undefined;
  if (!Array.isArray(ranges) || !ranges.every((range) => isRange(range, pieces))) return [];
  return ranges;
}

function isRange(range: unknown, pieces: number): range is PieceRange {
  if (!Array.isArray(range) || range.length !== 2 || !range.every(Number.isSafeInteger)) return false;
  const [first, end] = range;
  return first >= 0 && first < end && end <= pieces;
}

function traceKey(digest: BlobDigest): string {
  return `blobs/${hexOf(digest)}/trace.json`;
}

async function* oneOf(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield bytes;
}
