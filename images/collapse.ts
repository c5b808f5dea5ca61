import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { LayerDigest } from "#core/sandbox.ts";
import { type BlobDigest, hexOf, sha256Hex } from "./digest.ts";
import { typedStorageErrors, writeDurably } from "./durable.ts";
import { BLOCK_BYTES, deviceOf, MAX_DEVICES } from "./erofs/format.ts";
import type { Inode } from "./erofs/inode.ts";
import { NotOurImage, readImage } from "./erofs/reader.ts";
import { draftImage } from "./erofs/writer.ts";
import { damagedLayer, LAYER_FILES, type LayerBlob, type LayerManifest } from "./manifest.ts";
import { mergeTrees } from "./merge.ts";
import { DiskRoom } from "./room.ts";
import type { LayerStore } from "./store.ts";
import { markWhiteouts } from "./whiteouts.ts";

/** A layer and its manifest. */
interface Part {
  readonly digest: LayerDigest;
  readonly manifest: LayerManifest;
}

/**
 * Merges consecutive layers whose data and metadata together are at most `maxBytes`, as many as fit: the stack that is returned shows
 * what `layers` (lowest first) show, over and under whatever else. Only metadata is written: the new layers point into the blobs of
 * the old ones, which need not be here. Rejects with `NotFound` or `Internal` for a layer that is missing or damaged.
 */
export async function collapseLayers(
  store: LayerStore,
  layers: readonly LayerDigest[],
  maxBytes: number,
): Promise<readonly LayerDigest[]> {
  const parts = await Promise.all(layers.map(async (digest) => ({ digest, manifest: await store.manifest(digest) })));
  const collapsed: LayerDigest[] = [];
  for (const group of groupsOf(parts, maxBytes)) collapsed.push(await mergeGroup(store, group));
  return collapsed;
}

/** Neighbours that fit together: into the size, and into the devices of one image. */
function groupsOf(parts: readonly Part[], maxBytes: number): readonly (readonly Part[])[] {
  const groups: Part[][] = [];
  for (const part of parts) {
    const last = groups.at(-1);
    if (last !== undefined && fits([...last, part], maxBytes)) last.push(part);
    else groups.push([part]);
  }
  return groups;
}

function fits(parts: readonly Part[], maxBytes: number): boolean {
  const blobs = blobsOf(parts);
  let sizeBytes = 0;
  for (const blob of blobs.values()) sizeBytes += blob.sizeBytes;
  for (const { manifest } of parts) sizeBytes += manifest.metadata.sizeBytes;
  return blobs.size <= MAX_DEVICES && sizeBytes <= maxBytes;
}

function blobsOf(parts: readonly Part[]): ReadonlyMap<BlobDigest, LayerBlob> {
  return new Map(parts.flatMap(({ manifest }) => manifest.blobs.map((blob) => [blob.digest, blob] as const)));
}

async function mergeGroup(store: LayerStore, group: readonly Part[]): Promise<LayerDigest> {
  const [lowest, ...above] = group;
  if (lowest === undefined) throw new Error("a group without a layer");
  if (above.length === 0) return lowest.digest;
  using holds = new DisposableStack();
  // One that is not here comes on demand, and nobody collects it.
  const known = [...blobsOf(group).values()];
  for (const { digest } of known) holds.use(store.blobs.hold(digest));
  const numbers = new Map(known.map(({ digest }, index) => [hexOf(digest), index + 1]));
  let root = await treeOf(store, lowest, numbers);
  for (const part of above) root = mergeTrees(root, await treeOf(store, part, numbers));
  markWhiteouts(root);
  return await writeLayer(store, root, known);
}

async function treeOf(
  store: LayerStore,
  { digest, manifest }: Part,
  numbers: ReadonlyMap<string, number>,
): Promise<Inode> {
  const image = await readFile(store.metadataPath(digest));
  if (sha256Hex(image) !== manifest.metadata.sha256) throw damagedLayer(digest, "metadata");
  const own = new Set(manifest.blobs.map((blob) => hexOf(blob.digest)));
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

/** `known`: the blobs by the numbers of their devices in the tree's addresses, which count from 1. */
async function writeLayer(store: LayerStore, root: Inode, known: readonly LayerBlob[]): Promise<LayerDigest> {
  return await typedStorageErrors(async () => {
    const draft = await draftImage(root);
    const blobs = usedBlobs(root, known);
    const places = new Map(blobs.map(({ digest }, index) => [digest, index + 1]));
    const devices = blobs.map(({ digest, sizeBytes }) => ({ tag: hexOf(digest), blocks: sizeBytes / BLOCK_BYTES }));
    const image = draft.finish(devices, [0, ...known.map(({ digest }) => places.get(digest) ?? 0)]);
    await using scratch = await store.scratch();
    await new DiskRoom(scratch.dir).take(image.length);
    const dir = join(scratch.dir, "layer");
    await mkdir(dir, { mode: 0o700 });
    await writeDurably(join(dir, LAYER_FILES.metadata), image);
    const metadata = { sizeBytes: image.length, sha256: sha256Hex(image) };
    return await store.add({ dir, manifest: { version: 2, metadata, blobs } });
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
