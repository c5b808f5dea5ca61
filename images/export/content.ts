import { type FileHandle, open } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { MAX_DESCRIPTOR_BYTES, parseDescriptor } from "../blobs/descriptor.ts";
import type { BlobDigest } from "../digest.ts";
import { alignUp, BLOCK_BYTES, blockOf, deviceOf } from "../erofs/format.ts";
import type { Inode } from "../erofs/inode.ts";
import { readTree } from "../layers/retree.ts";
import { StoreBlobs } from "../lazy/blob-source.ts";
import { blobKey } from "../store/layout.ts";
import { type ObjectStore, readObject } from "../store/object-store.ts";
import type { LayerStore } from "../store.ts";

/** Where layers are: their metadata on this node, their data here too or in the store that nodes share. */
export interface LayerPlaces {
  readonly store: LayerStore;
  readonly objects: ObjectStore | undefined;
}

/** A layer that is open for reading. */
export interface OpenLayer extends AsyncDisposable {
  readonly root: Inode;
  /** The first `bytes` of the chunk at an address of the tree. */
  read(address: number, bytes: number): Promise<Uint8Array>;
}

type ReadAt = (offset: number, bytes: number) => Promise<Uint8Array>;

/** Opens a layer. Rejects with `NotFound`, `Internal` when its files are damaged, and as the shared store does. */
export async function openLayer(places: LayerPlaces, digest: LayerDigest, signal: AbortSignal): Promise<OpenLayer> {
  const { store } = places;
  const manifest = await store.manifest(digest);
  const root = await readTree(store, { digest, manifest }, manifest.blobs);
  await using stack = new AsyncDisposableStack();
  const blobs: ReadAt[] = [];
  // All at once: a collection that comes between leaves open files alone.
  for (const blob of manifest.blobs) blobs.push(await openBlob(places, blob.digest, { stack, signal }));
  const held = stack.move();
  return {
    root,
    async read(address, bytes) {
      const readAt = blobs[deviceOf(address) - 1];
      if (readAt === undefined) throw new Error("a tree names a blob that its manifest does not");
      return await readAt(blockOf(address) * BLOCK_BYTES, bytes);
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

async function openBlob(
  { store, objects }: LayerPlaces,
  digest: BlobDigest,
  { stack, signal }: { readonly stack: AsyncDisposableStack; readonly signal: AbortSignal },
): Promise<ReadAt> {
  if (objects !== undefined && !store.blobs.has(digest)) return await remoteBlob(objects, digest, signal);
  await store.blobs.check(digest);
  const file = stack.use(await open(store.blobs.dataPath(digest), "r"));
  return (offset, bytes) => readWhole(file, offset, bytes);
}

/** Chunks begin anywhere in a piece and may reach into the next; only whole pieces can be verified. */
async function remoteBlob(objects: ObjectStore, digest: BlobDigest, signal: AbortSignal): Promise<ReadAt> {
  const text = await readObject(objects, blobKey(digest, "descriptor"), MAX_DESCRIPTOR_BYTES, signal);
  const descriptor = parseDescriptor(text.toString("utf8"), digest);
  const source = new StoreBlobs(objects);
  const { pieceBytes, sizeBytes } = descriptor;
  return async (offset, bytes) => {
    const first = Math.floor(offset / pieceBytes);
    const start = first * pieceBytes;
    const pieces = Buffer.allocUnsafe(Math.min(alignUp(offset + bytes, pieceBytes), sizeBytes) - start);
    await source.read({ digest, descriptor }, first, pieces, signal);
    return pieces.subarray(offset - start, offset - start + bytes);
  };
}

async function readWhole(file: FileHandle, position: number, length: number): Promise<Uint8Array> {
  const bytes = Buffer.allocUnsafe(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await file.read(bytes, done, length - done, position + done);
    if (bytesRead === 0)
      throw new SandboxError("Internal", "the data of a layer ends early", { hint: "import it again" });
    done += bytesRead;
  }
  return bytes;
}
