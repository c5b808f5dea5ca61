import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import type { LayerDigest } from "#core/sandbox.ts";
import { type BlobDescriptor, damagedBlob, descriptorText, PIECE_BYTES } from "../descriptor.ts";
import { type BlobDigest, sha256, sha256Hex } from "../digest.ts";
import { manifestText } from "../manifest.ts";
import type { LayerStore } from "../store.ts";
import { blobKey, layerKey } from "./layout.ts";
import type { ObjectContent, ObjectStore } from "./object-store.ts";
import { fetchDescriptor } from "./pull.ts";

/** From a node's own layers to a store. */
export interface PushOptions {
  readonly layers: LayerStore;
  readonly objects: ObjectStore;
  readonly signal: AbortSignal;
}

/**
 * Puts a layer and its blobs into a store: data, then metadata, then manifest, leaving out what is there. Safe twice, after it was
 * broken off, and for many nodes at once. Never spreads damage: rejects with `Internal` when the node's own copy is not sound.
 */
export async function pushLayer(digest: LayerDigest, options: PushOptions): Promise<void> {
  const { layers, objects, signal } = options;
  const manifest = await layers.manifest(digest);
  for (const { digest: blob } of manifest.blobs) await pushBlob(blob, options);
  const { sizeBytes, sha256: hex } = manifest.metadata;
  const path = layers.metadataPath(digest);
  const metadata = { sizeBytes, sha256: hex, open: () => createReadStream(path, { highWaterMark: 2 ** 20 }) };
  await putMissing(objects, layerKey(digest, "metadata"), metadata, signal);
  // Put again when it is there: whoever collects sees that somebody counts on it.
  await objects.put(layerKey(digest, "manifest"), textContent(manifestText(manifest)), signal);
}

async function pushBlob(digest: BlobDigest, { layers, objects, signal }: PushOptions): Promise<void> {
  if (!layers.blobs.has(digest)) {
    // Data on demand is not here but there. Put again all the same: no collection takes it now.
    const there = descriptorText(await fetchDescriptor(objects, digest, signal));
    return await objects.put(blobKey(digest, "descriptor"), textContent(there), signal);
  }
  const descriptor = await layers.blobs.descriptor(digest);
  // First, and not only last: from here on the blob is young, and no collection takes what is already there.
  const isWhole = (await objects.head(blobKey(digest, "descriptor"), signal)) !== undefined;
  const text = textContent(descriptorText(descriptor));
  if (isWhole) await objects.put(blobKey(digest, "descriptor"), text, signal);
  const data = await objects.head(blobKey(digest, "data"), signal);
  if (isWhole && data?.sizeBytes === descriptor.sizeBytes) return;
  const path = layers.blobs.dataPath(digest);
  const hex = await hashVerified(path, digest, descriptor, signal);
  const open = () => createReadStream(path, { highWaterMark: 2 ** 20 });
  await objects.put(blobKey(digest, "data"), { sizeBytes: descriptor.sizeBytes, sha256: hex, open }, signal);
  const chunks = await layers.blobs.chunks(digest);
  if (chunks !== undefined) await objects.put(blobKey(digest, "chunks"), textContent(chunks), signal);
  await objects.put(blobKey(digest, "descriptor"), text, signal);
}

/** The SHA-256 of the whole data, every piece of which is what the descriptor says. */
async function hashVerified(
  path: string,
  digest: BlobDigest,
  { pieces }: BlobDescriptor,
  signal: AbortSignal,
): Promise<string> {
  await using file = await open(path, "r");
  const whole = sha256();
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  for (const [index, expected] of pieces.entries()) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, index * PIECE_BYTES);
    const piece = buffer.subarray(0, bytesRead);
    if (sha256Hex(piece) !== expected) throw damagedBlob(digest, "data");
    whole.update(piece);
  }
  return whole.hex();
}

async function putMissing(objects: ObjectStore, key: string, content: ObjectContent, signal: AbortSignal) {
  if ((await objects.head(key, signal))?.sizeBytes === content.sizeBytes) return;
  await objects.put(key, content, signal);
}

/** A text as the content of an object. */
export function textContent(text: string): ObjectContent {
  const bytes = Buffer.from(text);
  return {
    sizeBytes: bytes.length,
    sha256: sha256Hex(bytes),
    async *open() {
      yield bytes;
    },
  };
}
