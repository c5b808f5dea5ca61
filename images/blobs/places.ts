import { stat } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";
import { type BlobDigest, hexOf } from "../digest.ts";
import type { LazyNode } from "../lazy/lazy-node.ts";
import type { LayerBlob } from "../manifest.ts";
import type { ObjectStore } from "../store/object-store.ts";
import { BLOB_FILES, damagedBlob } from "./descriptor.ts";
import type { BlobStore } from "./store.ts";

/** Where blobs are that a node lacks. */
export interface RemoteBlobs {
  readonly objects: ObjectStore;
  /** `undefined` where blobs can be read in place: nothing is fetched then. */
  readonly lazy: LazyNode | undefined;
}

/** How a node has a blob: whole and its own, whole in a shared directory, or filled as it is read. */
export type BlobState = "complete" | "in-place" | "lazy";

/** A blob as it is mounted. */
export interface PlacedBlob {
  readonly digest: BlobDigest;
  readonly sizeBytes: number;
  readonly state: BlobState;
}

/** Files to mount, and what they are. */
export interface Devices {
  readonly paths: readonly string[];
  readonly blobs: readonly PlacedBlob[];
  /** To be called when the mount is gone, or did not come about. */
  release(): void;
}

/** Finds the data of blobs: here, in a shared directory, or on demand. */
export class BlobPlaces {
  readonly #blobs: BlobStore;
  readonly #remote: RemoteBlobs | undefined;

  constructor(blobs: BlobStore, remote: RemoteBlobs | undefined) {
    this.#blobs = blobs;
    this.#remote = remote;
  }

  get lazy(): LazyNode | undefined {
    return this.#remote?.lazy;
  }

  /** Rejects with `NotFound` for a blob that is nowhere, `Internal` for one that is damaged, and as a store does. */
  async acquire(blobs: readonly LayerBlob[]): Promise<Devices> {
    const placed = blobs.map((blob): PlacedBlob => ({ ...blob, state: this.stateOf(blob.digest) }));
    const lazy = placed.filter(({ state }) => state === "lazy").map(({ digest }) => digest);
    const lazyPaths = lazy.length === 0 ? [] : ((await this.lazy?.acquire(lazy)) ?? []);
    const release = () => this.lazy?.release(lazy);
    try {
      const paths: string[] = [];
      for (const blob of placed) {
        paths.push(blob.state === "lazy" ? (lazyPaths[lazy.indexOf(blob.digest)] ?? "") : await this.#whole(blob));
      }
      return { paths, blobs: placed, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** How the blob would be mounted now. */
  stateOf(digest: BlobDigest): BlobState {
    if (this.#remote === undefined || this.#blobs.has(digest)) return "complete";
    return this.#remote.lazy === undefined ? "in-place" : "lazy";
  }

  async #whole({ digest, sizeBytes, state }: PlacedBlob): Promise<string> {
    if (state === "complete") {
      if ((await this.#blobs.check(digest)).sizeBytes !== sizeBytes) throw damagedBlob(digest, "descriptor");
      return this.#blobs.dataPath(digest);
    }
    const key = `blobs/${hexOf(digest)}/${BLOB_FILES.data}`;
    const path = this.#remote?.objects.path(key);
    if (path === undefined) throw new Error(`${key} has no place`);
    if ((await sizeOf(path)) !== sizeBytes) throw damagedBlob(digest, "data");
    return path;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (cause) {
    throw new SandboxError("Unavailable", `the data of a layer cannot be read in place at ${path}`, {
      cause,
      hint: "dsec status tells whether the store answers",
    });
  }
}
