import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { hexOf, sha256Hex } from "../digest.ts";
import { typedStorageErrors, writeNew } from "../durable.ts";
import { BLOCK_BYTES, deviceOf } from "../erofs/format.ts";
import type { Inode } from "../erofs/inode.ts";
import { NotOurImage, readImage } from "../erofs/reader.ts";
import { draftImage } from "../erofs/writer.ts";
import { damagedLayer, LAYER_FILES, type LayerBlob, type LayerManifest } from "../manifest.ts";
import { DiskRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { markWhiteouts } from "./whiteouts.ts";

/** A layer and its manifest. */
export interface StoredPart {
  readonly digest: LayerDigest;
  readonly manifest: LayerManifest;
}

/** Layers with their manifests. Rejects with `NotFound`, or `Internal` for a damaged one. */
export async function readParts(store: LayerStore, layers: readonly LayerDigest[]): Promise<readonly StoredPart[]> {
  return await Promise.all(layers.map(async (digest) => ({ digest, manifest: await store.manifest(digest) })));
}

/**
 * The tree of a layer. Addresses of its chunks name `blobs`, which has all of the layer's, by their place there, counted from 1.
 * Rejects with `Internal` when the metadata is not what the manifest names, or no image of ours: it may come from elsewhere.
 */
export async function readTree(store: LayerStore, part: StoredPart, blobs: readonly LayerBlob[]): Promise<Inode> {
  const { digest, manifest } = part;
  const image = await readFile(store.metadataPath(digest));
  if (sha256Hex(image) !== manifest.metadata.sha256) throw damagedLayer(digest, "metadata");
  const own = new Set(manifest.blobs.map((blob) => hexOf(blob.digest)));
  const numbers = new Map(blobs.map((blob, index) => [hexOf(blob.digest), index + 1]));
  try {
    return readImage(image, (tag) => {
      const number = own.has(tag) ? numbers.get(tag) : undefined;
      if (number === undefined) throw new NotOurImage("it names a blob that its manifest does not");
      return number;
    });
  } catch (error) {
    if (error instanceof NotOurImage) throw damagedLayer(digest, "metadata", error);
    throw error;
  }
}

/**
 * A new layer of a tree that points into blobs as `readTree` does; they need not be here. Only metadata is written. The same tree
 * gives the same layer.
 */
export async function writeTree(store: LayerStore, root: Inode, blobs: readonly LayerBlob[]): Promise<LayerDigest> {
  return await typedStorageErrors(async () => {
    using holds = new DisposableStack();
    // One that is not here comes on demand, and nobody collects it.
    for (const { digest } of blobs) holds.use(store.blobs.hold(digest));
    markWhiteouts(root);
    const draft = await draftImage(root);
    const used = usedBlobs(root, blobs);
    const places = new Map(used.map(({ digest }, index) => [digest, index + 1]));
    const devices = used.map(({ digest, sizeBytes }) => ({ tag: hexOf(digest), blocks: sizeBytes / BLOCK_BYTES }));
    const image = draft.finish(devices, [0, ...blobs.map(({ digest }) => places.get(digest) ?? 0)]);
    await using scratch = await store.scratch();
    await new DiskRoom(scratch.dir).take(image.length);
    const dir = join(scratch.dir, "layer");
    await mkdir(dir, { mode: 0o700 });
    await writeNew(join(dir, LAYER_FILES.metadata), image);
    const metadata = { sizeBytes: image.length, sha256: sha256Hex(image) };
    return await store.add({ dir, manifest: { version: 2, metadata, blobs: used } });
  });
}

/** Blobs that the tree still points into, by name. */
function usedBlobs(root: Inode, known: readonly LayerBlob[]): readonly LayerBlob[] {
  const used = new Set<number>();
  const waiting = [root];
  for (const { content } of waiting) {
    if (content.type === "file") for (const address of content.chunks) used.add(deviceOf(address));
    if (content.type !== "directory") continue;
    for (const child of content.children.values()) waiting.push(child);
  }
  return known.filter((_, index) => used.has(index + 1)).sort((a, b) => (a.digest < b.digest ? -1 : 1));
}
