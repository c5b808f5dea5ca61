import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { type BlobDescriptor, damagedBlob, descriptorText, PIECE_BYTES } from "../blobs/descriptor.ts";
import { type BlobDigest, sha256, sha256Hex } from "../digest.ts";
import { typedStorageErrors } from "../durable.ts";
import { manifestText } from "../manifest.ts";
import type { LayerStore } from "../store.ts";
import { readTable } from "./blob-data.ts";
import { writeFrames } from "./frame-writer.ts";
import { framesBytes, framesKey, tableKey, tableText } from "./frames.ts";
import { blobKey, layerKey } from "./layout.ts";
import type { ObjectContent, ObjectStore } from "./object-store.ts";
import { type LayerMetadata, packedMetadataKey, packMetadata } from "./packed-metadata.ts";
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
  await pushMetadata({ digest, metadata: manifest.metadata }, options);
  // Put again when it is there: whoever collects sees that somebody counts on it.
  await objects.put(layerKey(digest, "manifest"), textContent(manifestText(manifest)), signal);
}

async function pushMetadata(layer: LayerMetadata, { layers, objects, signal }: PushOptions): Promise<void> {
  const { digest, metadata } = layer;
  const from = layers.metadataPath(digest);
  const key = layerKey(digest, "metadata");
  if (objects.path(key) !== undefined) {
    return await putMissing(objects, key, { ...metadata, open: () => reading(from) }, signal);
  }
  if ((await objects.head(key, signal))?.sizeBytes === metadata.sizeBytes) return;
  await using scratch = await layers.scratch();
  const to = join(scratch.dir, "metadata");
  // Each time: nothing else tells whether what is there has the size that it should have.
  const packed = await typedStorageErrors(() => packMetadata(layer, { from, to, signal }));
  await putMissing(objects, packedMetadataKey(digest), { ...packed, open: () => reading(to) }, signal);
}

async function pushBlob(digest: BlobDigest, { layers, objects, signal }: PushOptions): Promise<void> {
  if (!layers.blobs.has(digest)) {
    // Data on demand is not here but there. Put again all the same: no collection takes it now.
    const there = descriptorText(await fetchDescriptor(objects, digest, signal));
    return await objects.put(blobKey(digest, "descriptor"), textContent(there), signal);
  }
  const descriptor = await layers.blobs.descriptor(digest);
  // First, and not only last: from here on the blob is young, and no collection takes what is already there.
  const isBegun = (await objects.head(blobKey(digest, "descriptor"), signal)) !== undefined;
  const text = textContent(descriptorText(descriptor));
  if (isBegun) await objects.put(blobKey(digest, "descriptor"), text, signal);
  if (isBegun && (await hasData(objects, digest, descriptor, signal))) return;
  // What is read in place must be what it is on a node; what is carried is carried faster when there is less of it.
  const isInPlace = objects.path(blobKey(digest, "data")) !== undefined;
  await (isInPlace ? pushPlain : pushFrames)({ digest, descriptor }, { layers, objects, signal });
  const chunks = await layers.blobs.chunks(digest);
  if (chunks !== undefined) await objects.put(blobKey(digest, "chunks"), textContent(chunks), signal);
  await objects.put(blobKey(digest, "descriptor"), text, signal);
}

interface OwnBlob {
  readonly digest: BlobDigest;
  readonly descriptor: BlobDescriptor;
}

/** Whether the data of a blob is in the store, as far as that can be told without reading it: in frames, or plain. */
async function hasData(
  objects: ObjectStore,
  digest: BlobDigest,
  descriptor: BlobDescriptor,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const table = await readTable(objects, digest, descriptor, signal);
    const key = table === undefined ? blobKey(digest, "data") : framesKey(digest, table);
    const sizeBytes = table === undefined ? descriptor.sizeBytes : framesBytes(table);
    return (await objects.head(key, signal))?.sizeBytes === sizeBytes;
  } catch (error) {
    // A damaged table is put anew.
    if (error instanceof SandboxError && error.kind === "Internal") return false;
    throw error;
  }
}

async function pushPlain({ digest, descriptor }: OwnBlob, { layers, objects, signal }: PushOptions): Promise<void> {
  const path = layers.blobs.dataPath(digest);
  const hex = await hashVerified(path, digest, descriptor, signal);
  const content = { sizeBytes: descriptor.sizeBytes, sha256: hex, open: () => reading(path) };
  await objects.put(blobKey(digest, "data"), content, signal);
}

/** Frames, then the table that names them: one that is there is about frames that are. */
async function pushFrames({ digest, descriptor }: OwnBlob, { layers, objects, signal }: PushOptions): Promise<void> {
  await using scratch = await layers.scratch();
  const to = join(scratch.dir, "frames");
  const from = layers.blobs.dataPath(digest);
  const table = await typedStorageErrors(() => writeFrames({ digest, descriptor, from, to, signal }));
  const content = { sizeBytes: framesBytes(table), sha256: table.sha256, open: () => reading(to) };
  await putMissing(objects, framesKey(digest, table), content, signal);
  await objects.put(tableKey(digest), textContent(tableText(table)), signal);
}

function reading(path: string): AsyncIterable<Uint8Array> {
  return createReadStream(path, { highWaterMark: 2 ** 20 });
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
