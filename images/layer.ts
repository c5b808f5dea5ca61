import { open } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { BLOB_CHUNK_BYTES, type BlobInfo, BlobWriter } from "./blob.ts";
import { type BuilderOptions, LayerBuilder } from "./builder.ts";
import { sha256Hex } from "./digest.ts";
import { BLOCK_BYTES } from "./erofs/format.ts";
import { metadataImage } from "./erofs/writer.ts";
import { DiskRoom } from "./room.ts";
import { LAYER_FILES, type LayerStore, typedStorageErrors, writeDurably } from "./store.ts";
import { LayerTree } from "./tree.ts";

/** A builder whose full stages the feeder must write out, by awaiting `drain`, whenever it likes to wait. */
export interface Feed {
  readonly builder: LayerBuilder;
  drain(): Promise<void>;
}

/** A layer in the store and the tree it was made from. */
export interface BuiltLayer {
  readonly digest: LayerDigest;
  readonly tree: LayerTree;
  /** Both images together. */
  readonly sizeBytes: number;
  /** File data that went in, as `ImportLimits` counts it. */
  readonly dataBytes: number;
  readonly skippedDevices: number;
}

/** Where a layer goes and what it may hold. */
export interface BuildLayerOptions extends BuilderOptions {
  readonly store: LayerStore;
  /** The layer below in the same image, see `LayerTree`. */
  readonly lower?: LayerTree;
  /** A last look at the finished tree before it becomes an image. */
  readonly finish?: (tree: LayerTree) => void;
}

/** Makes one layer of what `feed` puts into the builder. When anything rejects, nothing is left in the store. */
export async function buildLayer(options: BuildLayerOptions, feed: (feed: Feed) => Promise<void>): Promise<BuiltLayer> {
  const { store } = options;
  await using scratch = await store.scratch();
  return await typedStorageErrors(async () => {
    await using file = await open(join(scratch.dir, LAYER_FILES.data), "wx", 0o600);
    const room = new DiskRoom(scratch.dir);
    const blob = new BlobWriter(file, room);
    const builder = new LayerBuilder(new LayerTree(options.limits, options.lower), blob, options);
    await feed({ builder, drain: () => (blob.isFull ? blob.drain() : Promise.resolve()) });
    options.finish?.(builder.tree);
    const data = await blob.finish();
    const image = await metadataImage(builder.tree.root, { blocks: data.sizeBytes / BLOCK_BYTES, sha256: data.sha256 });
    await room.take(image.length);
    await writeDurably(join(scratch.dir, LAYER_FILES.metadata), image);
    const digest = await store.commit(scratch, manifestOf(image, data));
    const sizeBytes = image.length + data.sizeBytes;
    const { tree, dataBytes, skippedDevices } = builder;
    return { digest, tree, sizeBytes, dataBytes, skippedDevices };
  });
}

function manifestOf(image: Buffer, data: BlobInfo) {
  return {
    version: 1,
    metadata: { sizeBytes: image.length, sha256: sha256Hex(image) },
    data: { sizeBytes: data.sizeBytes, sha256: data.sha256, chunkBytes: BLOB_CHUNK_BYTES, chunks: data.chunks },
  } as const;
}
