import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { BlobWriter, OWN_DEVICE, type WrittenBlob } from "../blobs/blob.ts";
import { BLOB_FILES, digestOfBlob } from "../blobs/descriptor.ts";
import type { BlobStore } from "../blobs/store.ts";
import { hexOf, sha256Hex } from "../digest.ts";
import { typedStorageErrors, writeNew } from "../durable.ts";
import { BLOCK_BYTES } from "../erofs/format.ts";
import { draftImage } from "../erofs/writer.ts";
import { LAYER_FILES, type LayerBlob, type LayerManifest } from "../manifest.ts";
import { DiskRoom } from "../room.ts";
import type { LayerStore } from "../store.ts";
import { type BuilderOptions, LayerBuilder } from "./builder.ts";
import { LayerTree } from "./tree.ts";
import { markWhiteouts } from "./whiteouts.ts";

/** A builder whose full stages the feeder must write out, by awaiting `drain`, whenever it likes to wait. */
export interface Feed {
  readonly builder: LayerBuilder;
  drain(): Promise<void>;
}

/** A layer in the store and the tree it was made from. */
export interface BuiltLayer {
  readonly digest: LayerDigest;
  readonly tree: LayerTree;
  /** Metadata, and each distinct chunk once, whether it was new to the store or not. */
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

/**
 * Makes one layer of what `feed` puts into the builder. What the store has of its data is not stored again; what has the same tree
 * and data gets the same digest again. When anything rejects, nothing is left in the store.
 */
export async function buildLayer(options: BuildLayerOptions, feed: (feed: Feed) => Promise<void>): Promise<BuiltLayer> {
  const { store } = options;
  await using scratch = await store.scratch();
  return await typedStorageErrors(async () => {
    const dirs = { blob: join(scratch.dir, "blob"), layer: join(scratch.dir, "layer") };
    for (const dir of Object.values(dirs)) await mkdir(dir, { mode: 0o700 });
    await using file = await open(join(dirs.blob, BLOB_FILES.data), "wx", 0o600);
    using known = store.knownChunks();
    const room = new DiskRoom(scratch.dir);
    const blob = new BlobWriter(file, room, (digest) => known.find(digest));
    const builder = new LayerBuilder(new LayerTree(options.limits, options.lower), blob, options);
    await feed({ builder, drain: () => (blob.isFull ? blob.drain() : Promise.resolve()) });
    options.finish?.(builder.tree);
    const written = await blob.finish();
    markWhiteouts(builder.tree.root);
    const draft = await draftImage(builder.tree.root);
    const content = draft.contentDigest((address) => blob.digestAt(address));
    const { blobs, numbers } = await numberDevices(store.blobs, blob, written);
    const image = draft.finish(blobs.map(deviceOfBlob), numbers);
    await room.take(image.length);
    await writeNew(join(dirs.layer, LAYER_FILES.metadata), image);
    const manifest: LayerManifest = {
      version: 2,
      metadata: { sizeBytes: image.length, sha256: sha256Hex(image) },
      blobs,
    };
    const newBlob = written === undefined ? undefined : { dir: dirs.blob, ...written };
    const digest = await store.add({ dir: dirs.layer, manifest, blob: newBlob, content });
    const { tree, dataBytes, skippedDevices } = builder;
    return { digest, tree, sizeBytes: image.length + blob.usedBytes, dataBytes, skippedDevices };
  });
}

/** The blobs of a layer by name, so that their order says nothing new, and the number in it of each device of an address. */
async function numberDevices(
  store: BlobStore,
  blob: BlobWriter,
  written: WrittenBlob | undefined,
): Promise<{ readonly blobs: readonly LayerBlob[]; readonly numbers: readonly number[] }> {
  const found: (LayerBlob & { readonly device: number })[] = [];
  if (written !== undefined) {
    const { descriptor } = written;
    found.push({ digest: digestOfBlob(descriptor), sizeBytes: descriptor.sizeBytes, device: OWN_DEVICE });
  }
  for (const [digest, device] of blob.devices) {
    const { sizeBytes } = await store.descriptor(digest);
    found.push({ digest, sizeBytes, device });
  }
  found.sort((a, b) => (a.digest < b.digest ? -1 : 1));
  const numbers: number[] = [];
  for (const [index, { device }] of found.entries()) numbers[device] = index + 1;
  return { blobs: found.map(({ digest, sizeBytes }) => ({ digest, sizeBytes })), numbers };
}

function deviceOfBlob({ digest, sizeBytes }: LayerBlob) {
  return { tag: hexOf(digest), blocks: sizeBytes / BLOCK_BYTES };
}
