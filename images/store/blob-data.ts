import { SandboxError } from "#core/errors.ts";
import { type BlobDescriptor, damagedBlob } from "../blobs/descriptor.ts";
import { type BlobDigest, sha256Hex } from "../digest.ts";
import { type FrameTable, framesKey, MAX_TABLE_BYTES, parseTable, pieceLength, pieceOf, tableKey } from "./frames.ts";
import { blobKey } from "./layout.ts";
import { type ObjectStore, readIfThere } from "./object-store.ts";

/** The data of a blob as it lies in a store. */
export interface BlobData {
  /**
   * The pieces from `first` up to and without `end` in their order, each verified; in one request. Each is the caller's own. Rejects with
   * `Internal` for what is damaged, `NotFound`, and as the store does.
   */
  pieces(first: number, end: number, signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** Frames that become pieces beside the one that is waited for: threads for such work are few, and a frame costs memory. */
const UNDER_WAY = 4;

/** Finds out how the data of a blob lies in a store: in frames, or plain as nodes of earlier versions put it. Rejects as reads do. */
export async function openBlobData(
  objects: ObjectStore,
  digest: BlobDigest,
  descriptor: BlobDescriptor,
  signal: AbortSignal,
): Promise<BlobData> {
  const table = await readTable(objects, digest, descriptor, signal);
  const { pieces } = descriptor;
  const stored = table === undefined ? plain(digest, descriptor) : inFrames(digest, table);
  const pieceFrom = async (bytes: Uint8Array, piece: number) => {
    const found = await pieceOf(bytes, pieceLength(descriptor, piece));
    if (found === undefined || sha256Hex(found) !== pieces[piece]) throw damagedBlob(digest, "data");
    return found;
  };
  return {
    async *pieces(first, end, signal) {
      const lengths = Array.from({ length: end - first }, (_, at) => stored.lengthOf(first + at));
      const range = { offset: stored.offsetOf(first), lengthBytes: lengths.reduce((sum, length) => sum + length, 0) };
      const underWay: Promise<Uint8Array>[] = [];
      let piece = first;
      for await (const bytes of inLengths(objects.get(stored.key, range, signal), lengths)) {
        const coming = pieceFrom(bytes, piece++);
        // Whoever reads may have left before it is waited for.
        coming.catch(() => undefined);
        underWay.push(coming);
        if (underWay.length > UNDER_WAY) yield await (underWay.shift() ?? coming);
      }
      for (const coming of underWay) yield await coming;
    },
  };
}

/** What a store says about the frames of a blob; `undefined` when it has none. Rejects with `Internal` when it is damaged. */
export async function readTable(
  objects: ObjectStore,
  digest: BlobDigest,
  descriptor: BlobDescriptor,
  signal: AbortSignal,
): Promise<FrameTable | undefined> {
  const text = await readIfThere(objects, tableKey(digest), MAX_TABLE_BYTES, signal);
  return text === undefined ? undefined : parseTable(text, digest, descriptor);
}

/** Where the bytes lie that pieces come from. */
interface Stored {
  readonly key: string;
  offsetOf(piece: number): number;
  lengthOf(piece: number): number;
}

function plain(digest: BlobDigest, descriptor: BlobDescriptor): Stored {
  return {
    key: blobKey(digest, "data"),
    offsetOf: (piece) => piece * descriptor.pieceBytes,
    lengthOf: (piece) => pieceLength(descriptor, piece),
  };
}

function inFrames(digest: BlobDigest, table: FrameTable): Stored {
  const offsets = new Float64Array(table.frames.length);
  const lengths = Uint32Array.from(table.frames);
  let offset = 0;
  for (const [piece, length] of lengths.entries()) {
    offsets[piece] = offset;
    offset += length;
  }
  return {
    key: framesKey(digest, table),
    offsetOf: (piece) => offsets[piece] ?? 0,
    lengthOf: (piece) => lengths[piece] ?? 0,
  };
}

/** The bytes of a source cut into these lengths, each in memory of its own. */
async function* inLengths(source: AsyncIterable<Uint8Array>, lengths: readonly number[]): AsyncIterable<Uint8Array> {
  let at = 0;
  let filled = 0;
  let bytes = Buffer.allocUnsafeSlow(lengths[at] ?? 0);
  for await (const part of source) {
    for (let taken = 0; taken < part.length; ) {
      const length = Math.min(part.length - taken, bytes.length - filled);
      if (length === 0) throw new SandboxError("Internal", "a store gave more than it was asked for");
      bytes.set(part.subarray(taken, taken + length), filled);
      taken += length;
      filled += length;
      if (filled < bytes.length) continue;
      yield bytes;
      filled = 0;
      bytes = Buffer.allocUnsafeSlow(lengths[++at] ?? 0);
    }
  }
}
