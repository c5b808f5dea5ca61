import { createReadStream } from "node:fs";
import { mkdir, open, readdir, readFile, rename, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { hexOf, parseLayerDigest, sha256 } from "./digest.ts";
import {
  damagedLayer,
  digestOf,
  type LayerManifest,
  MAX_MANIFEST_BYTES,
  manifestText,
  parseManifest,
} from "./manifest.ts";
import { openScratch, type Scratch, sweepScratch } from "./scratch.ts";
import { storeFull } from "./store-full.ts";

/** Where the two images of a layer lie. */
export interface LayerPaths {
  readonly metadata: string;
  readonly data: string;
}

/** Names of the files of one layer, in the store and while it is built. */
export const LAYER_FILES = { metadata: "metadata.erofs", data: "data.blob", manifest: "manifest.json" } as const;

/**
 * Layers in a directory, each named by the hash of its manifest. A layer is there completely or not at all, whatever dies
 * when; it never changes. Many processes may use one store. `StorageFull` when the disk is: nothing is left then.
 */
export interface LayerStore {
  readonly dir: string;
  has(digest: LayerDigest): Promise<boolean>;
  /** Rejects with `NotFound`, or `Internal` when the stored manifest was damaged. */
  manifest(digest: LayerDigest): Promise<LayerManifest>;
  /** Does not look whether the layer exists. */
  paths(digest: LayerDigest): LayerPaths;
  list(): Promise<readonly LayerDigest[]>;
  /** When the layer was added, or last added again: milliseconds since 1970; `undefined` when it does not exist. */
  addedAtMs(digest: LayerDigest): Promise<number | undefined>;
  /** A directory on the store's file system that vanishes with this process or when disposed. */
  scratch(): Promise<Scratch>;
  /** Takes over the two images that `build` made, durable already, in `scratch`. Idempotent. */
  commit(scratch: Scratch, manifest: LayerManifest): Promise<LayerDigest>;
  /** A quick look: the manifest is whole and both images have its sizes. Rejects as `verify` does. */
  check(digest: LayerDigest): Promise<void>;
  /** Reads everything and compares every hash. Rejects with `NotFound`, or with `Internal` naming the damaged part. */
  verify(digest: LayerDigest, signal?: AbortSignal): Promise<void>;
  /** Idempotent. Live mounts of the layer go on working. */
  remove(digest: LayerDigest): Promise<void>;
}

/** Opens a store, making the directory, and sweeps what dead processes left half done. */
export async function openLayerStore(dir: string): Promise<LayerStore> {
  const store = new DirectoryStore(dir);
  await mkdir(join(dir, "layers"), { recursive: true, mode: 0o700 });
  await sweepScratch(join(dir, "tmp"));
  return store;
}

class DirectoryStore implements LayerStore {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  async has(digest: LayerDigest): Promise<boolean> {
    return (await this.addedAtMs(digest)) !== undefined;
  }

  async addedAtMs(digest: LayerDigest): Promise<number | undefined> {
    try {
      return (await stat(join(this.#layer(digest), LAYER_FILES.manifest))).mtimeMs;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  async manifest(digest: LayerDigest): Promise<LayerManifest> {
    const file = join(this.#layer(digest), LAYER_FILES.manifest);
    try {
      if ((await stat(file)).size > MAX_MANIFEST_BYTES) throw damagedLayer(digest, "manifest");
      return parseManifest(await readFile(file, "utf8"), digest);
    } catch (error) {
      if (hasCode(error, "ENOENT")) throw unknownLayer(digest);
      throw error;
    }
  }

  paths(digest: LayerDigest): LayerPaths {
    const layer = this.#layer(digest);
    return { metadata: join(layer, LAYER_FILES.metadata), data: join(layer, LAYER_FILES.data) };
  }

  async list(): Promise<readonly LayerDigest[]> {
    const names = await readdir(join(this.dir, "layers"));
    return names.filter((name) => /^[0-9a-f]{64}$/.test(name)).map((name) => parseLayerDigest(`sha256:${name}`));
  }

  scratch(): Promise<Scratch> {
    return typedStorageErrors(() => openScratch(join(this.dir, "tmp")));
  }

  commit(scratch: Scratch, manifest: LayerManifest): Promise<LayerDigest> {
    return typedStorageErrors(async () => {
      const digest = digestOf(manifest);
      await writeDurably(join(scratch.dir, LAYER_FILES.manifest), manifestText(manifest));
      await syncDirectory(scratch.dir);
      const target = this.#layer(digest);
      try {
        await rename(scratch.dir, target);
      } catch (error) {
        if (!hasCode(error, "EEXIST", "ENOTEMPTY")) throw error;
        // Equal content is there already; a collector that runs now sees it as new.
        const now = new Date();
        await utimes(join(target, LAYER_FILES.manifest), now, now);
      }
      await syncDirectory(join(this.dir, "layers"));
      return digest;
    });
  }

  async check(digest: LayerDigest): Promise<void> {
    const manifest = await this.manifest(digest);
    const paths = this.paths(digest);
    for (const part of ["metadata", "data"] as const) {
      if ((await sizeOf(paths[part])) !== manifest[part].sizeBytes) throw damagedLayer(digest, part);
    }
  }

  async verify(digest: LayerDigest, signal?: AbortSignal): Promise<void> {
    await this.check(digest);
    const manifest = await this.manifest(digest);
    const paths = this.paths(digest);
    for (const part of ["metadata", "data"] as const) {
      if ((await hashFile(paths[part], signal)) !== manifest[part].sha256) throw damagedLayer(digest, part);
    }
  }

  async remove(digest: LayerDigest): Promise<void> {
    // Renamed away first, so that nobody ever sees half a layer.
    await using scratch = await openScratch(join(this.dir, "tmp"));
    try {
      await rename(this.#layer(digest), join(scratch.dir, "removed"));
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
    }
  }

  #layer(digest: LayerDigest): string {
    return join(this.dir, "layers", hexOf(digest));
  }
}

/** Runs `action` and turns a full disk, a used-up quota or a file size limit into `StorageFull`. */
export async function typedStorageErrors<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (!hasCode(error, "ENOSPC", "EDQUOT", "EFBIG")) throw error;
    throw storeFull(error);
  }
}

/** Writes a new file and waits until it is on the disk. */
export async function writeDurably(path: string, content: Uint8Array | string): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.writeFile(content);
  await file.sync();
}

async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, "r");
  await directory.sync();
}

/** `undefined` when the file is missing. */
async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function hashFile(path: string, signal: AbortSignal | undefined): Promise<string> {
  const running = sha256();
  const stream = createReadStream(path, { highWaterMark: 2 ** 20, ...(signal === undefined ? {} : { signal }) });
  for await (const piece of stream) running.update(piece);
  return running.hex();
}

function unknownLayer(digest: LayerDigest): SandboxError {
  return new SandboxError("NotFound", `the store has no layer ${digest}`, {
    hint: "import the artifact on this node, or point the node at the store that holds it",
    details: { layer: digest },
  });
}
