import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { BLOB_FILES, type BlobDescriptor, MAX_DESCRIPTOR_BYTES, parseDescriptor } from "../blobs/descriptor.ts";
import { type BlobDigest, sha256Hex } from "../digest.ts";
import { typedStorageErrors } from "../durable.ts";
import { damagedLayer, LAYER_FILES, type LayerManifest, MAX_MANIFEST_BYTES, parseManifest } from "../manifest.ts";
import { writeWithinRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { type BlobData, openBlobData } from "./blob-data.ts";
import { blobKey, layerKey } from "./layout.ts";
import { ListCheck, LocalPieces, soundChunks } from "./local-pieces.ts";
import { type ObjectStore, readObject } from "./object-store.ts";
import { fetchMetadata } from "./packed-metadata.ts";

/** Of a list of chunks: some 200,000. A longer one is not worth its reading. */
const MAX_LIST_BYTES = 2 ** 24;

/** Pieces of one request, 32 MiB: as many are looked for on the node between two turns of the event loop. */
const MAX_RUN = 128;

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

/** What a blob is, as a store has it. Rejects with `NotFound`, or `Internal` for one that is not what its digest says. */
export async function fetchDescriptor(
  objects: ObjectStore,
  digest: BlobDigest,
  signal: AbortSignal,
): Promise<BlobDescriptor> {
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
    const { metadata } = manifest;
    const source = fetchMetadata({ digest, metadata }, objects, signal);
    const found = await writeWithinRoom(join(dir, LAYER_FILES.metadata), source);
    if (found.sha256 !== metadata.sha256) throw damagedLayer(digest, "metadata");
    await layers.add({ dir, manifest });
  });
}

/**
 * Brings a whole blob to the node, every piece checked. Pieces whose chunks the node has in other blobs are put together here and not
 * fetched. Rejects as `pullMetadata` does.
 */
export async function pullBlob(digest: BlobDigest, { layers, objects, signal }: PullOptions): Promise<void> {
  if (layers.blobs.has(digest)) return layers.blobs.touch(digest);
  const descriptor = await fetchDescriptor(objects, digest, signal);
  await using scratch = await layers.scratch();
  await typedStorageErrors(async () => {
    const dir = join(scratch.dir, "blob");
    await mkdir(dir, { mode: 0o700 });
    const text = await fetchChunks(objects, digest, descriptor, signal);
    const list = text === undefined ? [] : soundChunks(text, descriptor);
    using local = new LocalPieces(layers, descriptor, list ?? []);
    const check = new ListCheck(list ?? []);
    const source = piecesOf({ digest, descriptor, local }, objects, signal);
    await writeWithinRoom(join(dir, BLOB_FILES.data), watched(source, check));
    const isKept = text !== undefined && list !== undefined && check.isTrue;
    await layers.addBlob({ dir, descriptor, ...(isKept ? { chunks: text } : {}) });
  });
}

/** The list of a blob's chunks, as its descriptor says; `undefined` when it cannot be had: it saves work, and nothing needs it. */
async function fetchChunks(
  objects: ObjectStore,
  digest: BlobDigest,
  { chunksSha256 }: BlobDescriptor,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    const list = await readObject(objects, blobKey(digest, "chunks"), MAX_LIST_BYTES, signal);
    return sha256Hex(list) === chunksSha256 ? list.toString("latin1") : undefined;
  } catch (error) {
    if (error instanceof SandboxError && (error.kind === "NotFound" || error.kind === "Internal")) return undefined;
    throw error;
  }
}

interface Pulled {
  readonly digest: BlobDigest;
  readonly descriptor: BlobDescriptor;
  readonly local: LocalPieces;
}

/** All pieces in their order, checked; those that lie behind each other and are not here come in one request. */
async function* piecesOf(
  { digest, descriptor, local }: Pulled,
  objects: ObjectStore,
  signal: AbortSignal,
): AsyncIterable<Uint8Array> {
  const { pieces } = descriptor;
  let data: BlobData | undefined;
  for (let piece = 0; piece < pieces.length; ) {
    const first = piece;
    const last = Math.min(first + MAX_RUN, pieces.length);
    let here: Uint8Array | undefined;
    while (piece < last && here === undefined) {
      here = local.take(piece);
      if (here === undefined) piece += 1;
    }
    if (piece > first) {
      data ??= await openBlobData(objects, digest, descriptor, signal);
      yield* data.pieces(first, piece, signal);
    }
    if (here !== undefined) yield here;
    if (here !== undefined) piece += 1;
  }
}

async function* watched(source: AsyncIterable<Uint8Array>, check: ListCheck): AsyncIterable<Uint8Array> {
  for await (const piece of source) {
    check.push(piece);
    yield piece;
  }
}
