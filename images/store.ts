import { readdirSync, readFileSync, renameSync, statSync, utimesSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { ChunkIndex, isIndexFull } from "./blobs/chunk-index.ts";
import { damagedBlob } from "./blobs/descriptor.ts";
import { KnownChunks } from "./blobs/known-chunks.ts";
import { BlobStore, type NewBlob } from "./blobs/store.ts";
import { type BlobDigest, hexOf, isHexDigest, parseLayerDigest } from "./digest.ts";
import { hashFile, statOf, syncDirectory, syncFiles, typedStorageErrors, writeNew } from "./durable.ts";
import {
  damagedLayer,
  digestOf,
  LAYER_FILES,
  type LayerBlob,
  type LayerManifest,
  MAX_MANIFEST_BYTES,
  manifestText,
  parseManifest,
} from "./manifest.ts";
import { openScratch, type Scratch, sweepScratch } from "./scratch.ts";

/** Where the images of a layer lie. */
export interface LayerPaths {
  readonly metadata: string;
  /** The data of its blobs, in the order of the metadata's devices. */
  readonly devices: readonly string[];
}

/** A layer in a scratch directory of the store, its metadata written. */
export interface NewLayer {
  readonly dir: string;
  readonly manifest: LayerManifest;
  /** The blob that was written for it, if there is one. */
  readonly blob?: NewBlob | undefined;
  /** What the tree and its data are, wherever they lie: see `ImageDraft.contentDigest`. Only from somebody who made both. */
  readonly content?: string;
}

/** What a collection spares beside the layers it is told to keep. */
export interface CollectOptions {
  /** What was added after this moment stays: its artifact may be about to get its name. Milliseconds since 1970. */
  readonly addedBeforeMs: number;
}

/** Version of the layout of a node's own store. */
const FORMAT = "2\n";

/**
 * Layers and blobs in a directory, each named by its content. A layer is there completely or not at all, whatever dies when; it
 * never changes. Many processes may use one store. `StorageFull` when the disk is: nothing is left then.
 */
export class LayerStore implements Disposable {
  readonly dir: string;
  readonly blobs: BlobStore;
  readonly #index: ChunkIndex;

  /** `openLayerStore` makes what this expects. */
  constructor(dir: string, index: ChunkIndex) {
    this.dir = dir;
    this.blobs = new BlobStore(join(dir, "blobs"));
    this.#index = index;
  }

  async has(digest: LayerDigest): Promise<boolean> {
    return (await this.addedAtMs(digest)) !== undefined;
  }

  /** When the layer was added, or last added again: milliseconds since 1970; `undefined` when it does not exist. */
  async addedAtMs(digest: LayerDigest): Promise<number | undefined> {
    return (await statOf(this.#file(digest, "manifest")))?.mtimeMs;
  }

  /** Rejects with `NotFound`, or `Internal` when the stored manifest was damaged. */
  async manifest(digest: LayerDigest): Promise<LayerManifest> {
    const path = this.#file(digest, "manifest");
    const size = (await statOf(path))?.size;
    if (size === undefined) throw unknownLayer(digest);
    if (size > MAX_MANIFEST_BYTES) throw damagedLayer(digest, "manifest");
    return parseManifest(await readFile(path, "utf8"), digest);
  }

  /** Where the metadata lies. Does not look whether the layer exists. */
  metadataPath(digest: LayerDigest): string {
    return this.#file(digest, "metadata");
  }

  /** Rejects as `manifest` does; does not look whether the blobs exist. */
  async paths(digest: LayerDigest): Promise<LayerPaths> {
    const { blobs } = await this.manifest(digest);
    const devices = blobs.map((blob) => this.blobs.dataPath(blob.digest));
    return { metadata: this.metadataPath(digest), devices };
  }

  async list(): Promise<readonly LayerDigest[]> {
    return (await readdir(join(this.dir, "layers")))
      .filter(isHexDigest)
      .map((hex) => parseLayerDigest(`sha256:${hex}`));
  }

  /** A directory on the store's file system that vanishes with this process or when disposed. */
  scratch(): Promise<Scratch> {
    return typedStorageErrors(() => openScratch(join(this.dir, "tmp")));
  }

  /** The chunks that a layer which is being made can share. Dispose it after the layer was added. */
  knownChunks(): KnownChunks {
    return new KnownChunks(this.#index, this.blobs);
  }

  /**
   * Takes over a layer, and the blob that was written with it. When there is a layer of the same content already, that one is the
   * answer, and nothing is added. Idempotent.
   */
  add(layer: NewLayer): Promise<LayerDigest> {
    return typedStorageErrors(async () => {
      const { blob, manifest, content } = layer;
      await writeNew(join(layer.dir, LAYER_FILES.manifest), manifestText(manifest));
      await Promise.all([syncFiles(layer.dir), blob === undefined ? undefined : this.blobs.prepare(blob)]);
      // One at a time, so that equal content that is made twice at once gets one name, and no collector sees half of this.
      const placed = this.#index.exclusively(() => {
        const existing = content === undefined ? undefined : this.#withContent(content);
        if (existing !== undefined) return { digest: existing };
        const added = blob === undefined ? undefined : this.blobs.place(blob);
        const digest = this.#place(layer);
        if (content !== undefined) this.#index.setLayer(content, digest);
        return { digest, added };
      });
      await Promise.all([this.blobs.settle(), syncDirectory(join(this.dir, "layers"))]);
      if (placed.added !== undefined && blob?.chunks !== undefined) await this.#share(placed.added, blob.chunks);
      return placed.digest;
    });
  }

  /**
   * Takes over a blob without a layer, see `BlobStore.add`; its chunks are shared from here on, if it has a list of them.
   */
  async addBlob(blob: NewBlob): Promise<BlobDigest> {
    const digest = await this.blobs.add(blob);
    if (blob.chunks !== undefined) await this.#share(digest, blob.chunks);
    return digest;
  }

  /** A quick look: the manifest is whole and all images have their sizes. Rejects as `verify` does. */
  async check(digest: LayerDigest): Promise<void> {
    for (const blob of await this.checkMetadata(digest)) {
      const { sizeBytes } = await this.blobs.check(blob.digest);
      if (sizeBytes !== blob.sizeBytes) throw damagedBlob(blob.digest, "descriptor");
    }
  }

  /** The same without a look at its blobs, which it resolves with: they may be elsewhere. */
  async checkMetadata(digest: LayerDigest): Promise<readonly LayerBlob[]> {
    const { metadata, blobs } = await this.manifest(digest);
    if ((await statOf(this.metadataPath(digest)))?.size !== metadata.sizeBytes) throw damagedLayer(digest, "metadata");
    return blobs;
  }

  /** Reads everything and compares every hash. Rejects with `NotFound`, or with `Internal` naming the damaged part. */
  async verify(digest: LayerDigest, signal?: AbortSignal): Promise<void> {
    await this.check(digest);
    const { metadata, blobs } = await this.manifest(digest);
    if ((await hashFile(this.metadataPath(digest), signal)) !== metadata.sha256) throw damagedLayer(digest, "metadata");
    for (const blob of blobs) await this.blobs.verify(blob.digest, signal);
  }

  /** Idempotent. Its blobs stay until they are collected. Live mounts of the layer go on working. */
  async remove(digest: LayerDigest): Promise<void> {
    await this.#remove(digest, Number.POSITIVE_INFINITY);
  }

  /** Removes the layer unless it was added since: false then. */
  removeOld(digest: LayerDigest, { addedBeforeMs }: CollectOptions): Promise<boolean> {
    return this.#remove(digest, addedBeforeMs);
  }

  /** Removes the blobs that no layer names, nobody holds, and that were not added since. Returns what it removed. */
  async collectBlobs({ addedBeforeMs }: CollectOptions): Promise<readonly BlobDigest[]> {
    const seen = new Set<string>();
    const needed = new Set<BlobDigest>();
    for (const digest of await this.list()) {
      seen.add(hexOf(digest));
      for (const blob of (await this.manifest(digest)).blobs) needed.add(blob.digest);
    }
    const candidates: BlobDigest[] = [];
    for (const digest of await this.blobs.list()) {
      const addedAtMs = needed.has(digest) ? undefined : await this.blobs.addedAtMs(digest);
      if (addedAtMs !== undefined && addedAtMs < addedBeforeMs) candidates.push(digest);
    }
    if (candidates.length === 0) return [];
    await using scratch = await openScratch(join(this.dir, "tmp"));
    const removed = this.#index.exclusively(() => {
      for (const blob of this.#blobsOfLayersBut(seen)) needed.add(blob);
      return candidates.filter(
        (blob) => !needed.has(blob) && this.blobs.takeAway(blob, join(scratch.dir, hexOf(blob))),
      );
    });
    for (const blob of removed) this.#index.forget(blob);
    this.#index.sweep();
    return removed;
  }

  /** Closes the index. */
  [Symbol.dispose](): void {
    this.#index[Symbol.dispose]();
  }

  async #remove(digest: LayerDigest, addedBeforeMs: number): Promise<boolean> {
    // Renamed away first, so that nobody ever sees half a layer.
    await using scratch = await openScratch(join(this.dir, "tmp"));
    return this.#index.exclusively(() => {
      try {
        if (statSync(this.#file(digest, "manifest")).mtimeMs >= addedBeforeMs) return false;
        renameSync(this.#layer(digest), join(scratch.dir, "removed"));
      } catch (error) {
        if (!hasCode(error, "ENOENT")) throw error;
      }
      this.#index.forgetLayer(digest);
      return true;
    });
  }

  #withContent(content: string): LayerDigest | undefined {
    const digest = this.#index.layerOf(content);
    if (digest === undefined || !this.#isWhole(digest)) return undefined;
    this.#touch(digest);
    return digest;
  }

  #isWhole(digest: LayerDigest): boolean {
    const manifest = this.#manifestNow(digest);
    return manifest?.blobs.every((blob) => this.blobs.has(blob.digest)) ?? false;
  }

  #place({ dir, manifest }: NewLayer): LayerDigest {
    const digest = digestOf(manifest);
    try {
      renameSync(dir, this.#layer(digest));
    } catch (error) {
      if (!hasCode(error, "EEXIST", "ENOTEMPTY")) throw error;
      // Equal content is there already.
      this.#touch(digest);
    }
    return digest;
  }

  /** A collector that runs now sees the layer as new. */
  #touch(digest: LayerDigest): void {
    const now = new Date();
    utimesSync(this.#file(digest, "manifest"), now, now);
  }

  #blobsOfLayersBut(seen: ReadonlySet<string>): BlobDigest[] {
    const names = readdirSync(join(this.dir, "layers")).filter((name) => isHexDigest(name) && !seen.has(name));
    return names.flatMap((hex) => {
      const manifest = this.#manifestNow(parseLayerDigest(`sha256:${hex}`));
      return manifest?.blobs.map(({ digest }) => digest) ?? [];
    });
  }

  #manifestNow(digest: LayerDigest): LayerManifest | undefined {
    try {
      return parseManifest(readFileSync(this.#file(digest, "manifest"), "utf8"), digest);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Chunks of the blob are found from here on; on a full disk, from the next opening with room. */
  async #share(blob: BlobDigest, chunks: string): Promise<void> {
    try {
      await this.#index.add(blob, chunks);
    } catch (error) {
      if (!isIndexFull(error)) throw error;
    }
  }

  #layer(digest: LayerDigest): string {
    return join(this.dir, "layers", hexOf(digest));
  }

  #file(digest: LayerDigest, file: keyof typeof LAYER_FILES): string {
    return join(this.#layer(digest), LAYER_FILES[file]);
  }
}

/**
 * Opens a store, making the directory, and sweeps what dead processes left half done. `FailedPrecondition` for a store of an older
 * layout: its layers are not read.
 */
export async function openLayerStore(dir: string): Promise<LayerStore> {
  for (const name of ["layers", "blobs"]) await mkdir(join(dir, name), { recursive: true, mode: 0o700 });
  await checkFormat(dir);
  await sweepScratch(join(dir, "tmp"));
  const index = ChunkIndex.open(join(dir, "index.db"));
  try {
    await refresh(index, new BlobStore(join(dir, "blobs")));
  } catch (error) {
    index[Symbol.dispose]();
    throw error;
  }
  return new LayerStore(dir, index);
}

async function checkFormat(dir: string): Promise<void> {
  const file = join(dir, "format");
  if ((await statOf(file)) === undefined && (await readdir(join(dir, "layers"))).length === 0) {
    await writeFile(file, FORMAT, { mode: 0o600 });
  }
  const found = (await statOf(file)) === undefined ? "1" : await readFile(file, "utf8");
  if (found === FORMAT) return;
  throw new SandboxError(
    "FailedPrecondition",
    `the layers in ${dir} have format ${found.trim()}, and this node reads 2`,
    {
      hint: `move ${dir} away and import the artifacts again`,
      details: { directory: dir },
    },
  );
}

/** Brings the index up to what is in the directory: a process may have died between adding a blob and its chunks. */
async function refresh(index: ChunkIndex, blobs: BlobStore): Promise<void> {
  const indexed = index.blobs();
  const present = new Set(await blobs.list());
  for (const blob of indexed) {
    if (!present.has(blob)) index.forget(blob);
  }
  for (const blob of present) {
    const chunks = indexed.has(blob) ? undefined : await soundChunks(blobs, blob);
    if (chunks !== undefined) await index.add(blob, chunks);
  }
}

/** A damaged list would lead layers astray: its chunks are stored again instead, and `verify` names it. */
async function soundChunks(blobs: BlobStore, blob: BlobDigest): Promise<string | undefined> {
  try {
    return await blobs.chunks(blob);
  } catch (error) {
    if (error instanceof SandboxError) return undefined;
    throw error;
  }
}

function unknownLayer(digest: LayerDigest): SandboxError {
  return new SandboxError("NotFound", `the store has no layer ${digest}`, {
    hint: "import the artifact on this node, or point the node at the store that holds it",
    details: { layer: digest },
  });
}
