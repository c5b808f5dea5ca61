import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { BLOB_FILES, type BlobDescriptor, damagedBlob, MAX_DESCRIPTOR_BYTES, parseDescriptor } from "../descriptor.ts";
import { type BlobDigest, sha256, sha256Hex } from "../digest.ts";
import { typedStorageErrors } from "../durable.ts";
import { damagedLayer, LAYER_FILES, type LayerManifest, MAX_MANIFEST_BYTES, parseManifest } from "../manifest.ts";
import { DiskRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { blobKey, layerKey } from "./layout.ts";
import { type ObjectStore, readObject } from "./object-store.ts";

/** From a store to a node's own layers. */
export interface PullOptions {
  readonly layers: LayerStore;
  readonly objects: ObjectStore;
  readonly signal: AbortSignal;
}

/** What a layer is, as a store has it: its text is what the digest says. Rejects with `NotFound`, or `Internal` for another text. */
async function fetchManifest(objects: ObjectStore, digest: LayerDigest, signal: AbortSignal): Promise<LayerManifest> {
  const text = await readObject(objects, layerKey(digest, "manifest"), MAX_MANIFEST_BYTES, signal);
  return parseManifest(text.toString(), digest);
}

/** What a blob is, as a store has it; as `fetchManifest`. */
async function fetchDescriptor(objects: ObjectStore, digest: BlobDigest, signal: AbortSignal): Promise<BlobDescriptor> {
  const text = await readObject(objects, blobKey(digest, "descriptor"), MAX_DESCRIPTOR_BYTES, signal);
  return parseDescriptor(text.toString(), digest);
}

/**
 * Brings manifest and metadata of a layer to the node, checked; none of its blobs. Rejects with `NotFound`, `Internal` for what is
 * not what its digest says, `StorageFull`; nothing is left then.
 */
export async function pullMetadata(digest: LayerDigest, { layers, objects, signal }: PullOptions): Promise<void> {
  const manifest = await fetchManifest(objects, digest, signal);
  await using scratch = await layers.scratch();
  await typedStorageErrors(async () => {
    const dir = join(scratch.dir, "layer");
    await mkdir(dir, { mode: 0o700 });
    const { sizeBytes, sha256: hex } = manifest.metadata;
    const range = { offset: 0, lengthBytes: sizeBytes };
    const source = objects.get(layerKey(digest, "metadata"), range, signal);
    const found = await writeFetched(join(dir, LAYER_FILES.metadata), source);
    if (found !== hex) throw damagedLayer(digest, "metadata");
    await layers.add({ dir, manifest });
  });
}

/** Brings a whole blob to the node, every piece checked. Rejects as `pullMetadata` does. */
export async function pullBlob(digest: BlobDigest, { layers, objects, signal }: PullOptions): Promise<void> {
  if (layers.blobs.has(digest)) return layers.blobs.touch(digest);
  const descriptor = await fetchDescriptor(objects, digest, signal);
  await using scratch = await layers.scratch();
  await typedStorageErrors(async () => {
    const dir = join(scratch.dir, "blob");
    await mkdir(dir, { mode: 0o700 });
    const range = { offset: 0, lengthBytes: descriptor.sizeBytes };
    const source = objects.get(blobKey(digest, "data"), range, signal);
    await writeFetched(join(dir, BLOB_FILES.data), inPieces(source, digest, descriptor));
    await layers.blobs.add({ dir, descriptor });
  });
}

/** Writes a new file within the node's room; resolves to its SHA-256. */
async function writeFetched(path: string, source: AsyncIterable<Uint8Array>): Promise<string> {
  const room = new DiskRoom(join(path, ".."));
  const running = sha256();
  await using file = await open(path, "wx", 0o600);
  for await (const part of source) {
    await room.take(part.length);
    running.update(part);
    await file.writeFile(part);
  }
  return running.hex();
}

/** What comes of a blob, in its pieces, each of which has the hash that the descriptor says. */
async function* inPieces(
  source: AsyncIterable<Uint8Array>,
  digest: BlobDigest,
  { pieces, pieceBytes }: BlobDescriptor,
): AsyncIterable<Uint8Array> {
  const piece = Buffer.allocUnsafe(pieceBytes);
  let filled = 0;
  let index = 0;
  const checked = () => {
    const whole = piece.subarray(0, filled);
    if (sha256Hex(whole) !== pieces[index]) throw damagedBlob(digest, "data");
    filled = 0;
    index += 1;
    return whole;
  };
  for await (const part of source) {
    for (let taken = 0; taken < part.length; ) {
      const length = Math.min(part.length - taken, pieceBytes - filled);
      piece.set(part.subarray(taken, taken + length), filled);
      taken += length;
      filled += length;
      if (filled === pieceBytes) yield checked();
    }
  }
  if (filled > 0) yield checked();
}
