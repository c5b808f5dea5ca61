import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import type { Mechanism } from "#host/lazy/requests.ts";
import { takeWriteLease } from "#host/sys/lease.ts";
import { type BlobDescriptor, descriptorText } from "../blobs/descriptor.ts";
import { type BlobDigest, blobDigest, hexOf, isHexDigest } from "../digest.ts";
import { typedStorageErrors } from "../durable.ts";
import { CACHED_FILES, CachedBlob } from "./cached-blob.ts";

/** What a cache may take. */
export interface CacheOptions {
  readonly dir: string;
  readonly mechanism: Mechanism;
  /** Of pieces on the disk. Above it, blobs that nobody uses go, the longest unused first, until a tenth is free again. */
  readonly limitBytes: number;
  /** Called before a blob goes: from then on it must not be served. */
  onEvict(blob: CachedBlob): void;
  /** Called when the last piece of a blob has come. */
  onComplete(blob: CachedBlob): void;
  readonly log: (line: string) => void;
}

/** Part of the limit that is in use after an eviction. */
const LOW_WATERMARK = 0.9;

/**
 * Blobs that are here in part: `<dir>/<hex>/data` has holes, `present` says where none are. A bit gets to the disk after its piece, so
 * that a crash costs a fetch, never data. One process uses a cache.
 */
export class BlobCache {
  readonly #options: CacheOptions;
  readonly #blobs = new Map<BlobDigest, CachedBlob>();
  readonly #held = new Set<BlobDigest>();
  #usedBytes = 0;

  /** Made by `openBlobCache`. */
  constructor(options: CacheOptions) {
    this.#options = options;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  get blobs(): ReadonlyMap<BlobDigest, CachedBlob> {
    return this.#blobs;
  }

  /** Adds an empty blob, or finds the one that is here. Calls for one blob must not overlap. Rejects with `StorageFull`. */
  async add(digest: BlobDigest, descriptor: BlobDescriptor): Promise<CachedBlob> {
    const known = this.#blobs.get(digest);
    if (known !== undefined) return known;
    await typedStorageErrors(() => this.#make(digest, descriptor));
    return this.load(digest);
  }

  /** Takes over what an earlier process left. Throws when it is damaged. */
  load(digest: BlobDigest): CachedBlob {
    const blob = new CachedBlob(digest, this.#dir(digest), {
      mechanism: this.#options.mechanism,
      makeRoom: (bytes) => this.#makeRoom(bytes),
      onGrowth: (bytes) => {
        this.#usedBytes += bytes;
      },
      onComplete: (complete) => this.#options.onComplete(complete),
    });
    this.#blobs.set(digest, blob);
    this.#usedBytes += blob.presentBytes;
    return blob;
  }

  /** Blobs in use stay; every other one may go. */
  hold(digest: BlobDigest): void {
    this.#held.add(digest);
    this.#touch(digest);
  }

  release(digest: BlobDigest): void {
    this.#held.delete(digest);
    this.#touch(digest);
  }

  /** Notes on the disk what is there. One call at a time. */
  async flush(): Promise<void> {
    for (const blob of [...this.#blobs.values()]) await blob.flush();
  }

  async #make(digest: BlobDigest, descriptor: BlobDescriptor): Promise<void> {
    const dir = this.#dir(digest);
    const scratch = `${dir}.new`;
    await rm(scratch, { recursive: true, force: true });
    await mkdir(scratch, { mode: 0o700 });
    await writeNew(join(scratch, CACHED_FILES.descriptor), { content: descriptorText(descriptor) });
    await writeNew(join(scratch, CACHED_FILES.data), { sizeBytes: descriptor.sizeBytes });
    await writeNew(join(scratch, CACHED_FILES.present), {});
    await rename(scratch, dir);
  }

  /** Before pieces are written. Rejects with `StorageFull` when what is in use fills the cache. */
  async #makeRoom(bytes: number): Promise<void> {
    const { limitBytes, dir } = this.#options;
    if (this.#usedBytes + bytes <= limitBytes) return;
    const unused = [...this.#blobs.values()].filter(({ digest }) => !this.#held.has(digest));
    unused.sort((left, right) => left.usedAtMs - right.usedAtMs);
    for (const blob of unused) {
      if (this.#usedBytes + bytes <= limitBytes * LOW_WATERMARK) break;
      await this.#evict(blob);
    }
    if (this.#usedBytes + bytes <= limitBytes) return;
    throw new SandboxError("StorageFull", `the cache of layers in ${dir} is full of what sandboxes use`, {
      hint: "give the node a larger --image-cache, or remove sandboxes",
    });
  }

  /** A mount may hold the data although nobody said so: the kernel knows, and such a blob stays. */
  async #evict(blob: CachedBlob): Promise<void> {
    if (blob.isBusy || !this.#isUnread(blob)) return;
    this.#options.onEvict(blob);
    this.#blobs.delete(blob.digest);
    this.#usedBytes -= blob.presentBytes;
    blob.close();
    this.#options.log(`blob ${blob.digest} leaves the cache`);
    await rm(this.#dir(blob.digest), { recursive: true, force: true });
  }

  #isUnread(blob: CachedBlob): boolean {
    using lease = takeWriteLease(blob.file.fd);
    return lease !== undefined;
  }

  #touch(digest: BlobDigest): void {
    const blob = this.#blobs.get(digest);
    if (blob !== undefined) blob.usedAtMs = Date.now();
  }

  #dir(digest: BlobDigest): string {
    return join(this.#options.dir, hexOf(digest));
  }
}

/** Opens a cache, making it, with what an earlier process left. What is damaged goes. */
export async function openBlobCache(options: CacheOptions): Promise<BlobCache> {
  await mkdir(options.dir, { recursive: true, mode: 0o700 });
  const cache = new BlobCache(options);
  for (const name of await readdir(options.dir)) {
    try {
      if (!isHexDigest(name)) throw new Error("a scratch directory");
      cache.load(blobDigest(name));
    } catch {
      options.log(`${join(options.dir, name)} is no whole blob and goes`);
      await rm(join(options.dir, name), { recursive: true, force: true });
    }
  }
  return cache;
}

async function writeNew(
  path: string,
  { content = "", sizeBytes }: { content?: string; sizeBytes?: number },
): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.writeFile(content);
  if (sizeBytes !== undefined) await file.truncate(sizeBytes);
  await file.sync();
}
