import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { type BlobDescriptor, damagedBlob } from "../blobs/descriptor.ts";
import { type BlobDigest, sha256, sha256Hex } from "../digest.ts";
import { DiskRoom } from "../room.ts";
import { type FrameTable, frameOf, pieceLength } from "./frames.ts";

/** A node's own copy of a blob, and where its frames go. */
export interface FramesOptions {
  readonly digest: BlobDigest;
  readonly descriptor: BlobDescriptor;
  /** Of the data. */
  readonly from: string;
  /** Of a new file, within the node's room. */
  readonly to: string;
  readonly signal: AbortSignal;
}

/** Pieces that are compressed at a time: a push is not to take more of a node than this. */
const UNDER_WAY = 2;

/** Writes the data of a blob in frames. Rejects with `Internal` when a piece of the data is not what the descriptor says, and with `StorageFull`. */
export async function writeFrames({ digest, descriptor, from, to, signal }: FramesOptions): Promise<FrameTable> {
  await using source = await open(from, "r");
  await using target = await open(to, "wx", 0o600);
  const room = new DiskRoom(dirname(to));
  const whole = sha256();
  const frames: number[] = [];
  const underWay: Promise<Uint8Array>[] = [];
  const keep = async (frame: Uint8Array) => {
    await room.take(frame.length);
    await target.writeFile(frame);
    whole.update(frame);
    frames.push(frame.length);
  };
  for (const [index, expected] of descriptor.pieces.entries()) {
    signal.throwIfAborted();
    const piece = Buffer.allocUnsafeSlow(pieceLength(descriptor, index));
    const { bytesRead } = await source.read(piece, 0, piece.length, index * descriptor.pieceBytes);
    if (bytesRead !== piece.length || sha256Hex(piece) !== expected) throw damagedBlob(digest, "data");
    const coming = frameOf(piece);
    coming.catch(() => undefined);
    underWay.push(coming);
    if (underWay.length > UNDER_WAY) await keep(await (underWay.shift() ?? coming));
  }
  for (const coming of underWay) await keep(await coming);
  return { sha256: whole.hex(), sizeBytes: descriptor.sizeBytes, frames };
}
