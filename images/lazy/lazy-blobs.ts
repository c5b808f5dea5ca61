import { join } from "node:path";
import { asSandboxError, type SandboxError } from "#core/errors.ts";
import type { LazyFile, Mechanism, Read } from "#host/lazy/requests.ts";
import { COUNT } from "#host/lazy/requests.ts";
import { LazyServer } from "#host/lazy/server.ts";
import { BLOB_FILES, MAX_DESCRIPTOR_BYTES, parseDescriptor } from "../blobs/descriptor.ts";
import { type BlobDigest, blobDigest, hexOf } from "../digest.ts";
import { type ObjectStore, readObject } from "../store/object-store.ts";
import { StoreBlobs } from "./blob-source.ts";
import { type BlobCache, openBlobCache } from "./cache.ts";
import type { CachedBlob } from "./cached-blob.ts";
import { Fetcher } from "./fetcher.ts";
import { ReadAhead } from "./read-ahead.ts";
import { mergeTraces, type PieceRange, readTrace, writeTrace } from "./traces.ts";

/** What lazy blobs are made of. */
export interface LazyBlobsOptions {
  readonly mechanism: Mechanism;
  /** The connection with the kernel. */
  readonly descriptor: number;
  /** Where requests in hand are kept. */
  readonly hand: string;
  /** Where files appear that are served over FUSE. */
  readonly filesDir: string;
  readonly cacheDir: string;
  readonly cacheBytes: number;
  readonly store: ObjectStore;
  /** How long a reader waits for data before it gets EIO. */
  readonly deadlineMs: number;
  onEvent(event: LazyEvent): void;
  readonly onFailure: (error: Error) => void;
}

/** What an operator should know. */
export type LazyEvent =
  | { readonly type: "store"; readonly works: boolean; readonly reason: string }
  | { readonly type: "usage"; readonly usage: LazyUsage }
  | { readonly type: "note"; readonly text: string };

/** What became of reads and of the cache, since the filler was started. */
export interface LazyUsage {
  readonly cachedBytes: number;
  /** Reads that ended with EIO. */
  readonly failedReads: number;
  /** Why the last of them did, and when: milliseconds since 1970. */
  readonly lastFailure?: { readonly message: string; readonly atMs: number };
}

/** How much of a blob is here. */
export interface LazyReport {
  readonly blob: BlobDigest;
  readonly sizeBytes: number;
  readonly fetchedBytes: number;
  /** Reads that found everything here, and reads that waited; both end when the blob is complete. */
  readonly hits: number;
  readonly misses: number;
}

/** 2 MiB of pieces of 256 KiB. */
const PIECES_PER_REQUEST = 8;
const REQUESTS = 8;
/** How often the disk is told what came, and traces are looked at. */
export const TICK_MS = 1_000;
/** A run is over, as far as a trace goes, when nothing new was touched for so long. */
const QUIET_TICKS = 5;
/** The same trouble is told so often at most. */
const NOTE_EVERY_MS = 10_000;
const MAX_NOTES = 100;

interface Watched {
  readonly readAhead: ReadAhead;
  trace: readonly PieceRange[];
  touched: number;
  quietTicks: number;
}

/** The lazy blobs of a node, in the process that fills them: cache, fetcher and server together. */
export class LazyBlobs {
  readonly #options: LazyBlobsOptions;
  readonly #cache: BlobCache;
  readonly #source: StoreBlobs;
  readonly #fetcher: Fetcher;
  readonly #server: LazyServer;
  readonly #watched = new Map<BlobDigest, Watched>();
  readonly #opening = new Map<BlobDigest, Promise<CachedBlob>>();
  readonly #notes = new Map<string, number>();
  #storeWorks = true;
  #usage: LazyUsage = { cachedBytes: 0, failedReads: 0 };
  #toldUsage: LazyUsage | undefined;

  /** Made by `openLazyBlobs`. */
  constructor(options: LazyBlobsOptions, cache: BlobCache) {
    const { mechanism, descriptor, hand, onFailure } = options;
    this.#options = options;
    this.#cache = cache;
    this.#source = new StoreBlobs(options.store);
    this.#fetcher = new Fetcher({
      source: this.#source,
      requests: REQUESTS,
      piecesPerRequest: PIECES_PER_REQUEST,
      deadlineMs: options.deadlineMs,
      onOutcome: (error) => this.#judge(error),
    });
    const fill = (file: LazyFile, read: Read) =>
      this.#fill(file, read).catch((error: unknown) => {
        this.#countFailure(asSandboxError(error));
        throw error;
      });
    const onMark = (file: LazyFile, read: Read) => this.#readAhead(file, read);
    this.#server = new LazyServer({ mechanism, descriptor, hand, fill, onMark, onFailure });
  }

  /** Serves what is in the cache; `held` is in use. */
  start(held: readonly BlobDigest[]): void {
    for (const digest of held) this.#cache.hold(digest);
    for (const blob of this.#cache.blobs.values()) this.#server.add(blob.file, blob.path);
    this.#server.start();
    for (const digest of held) {
      const blob = this.#cache.blobs.get(digest);
      if (blob !== undefined) this.#watch(blob);
    }
  }

  /**
   * Makes a blob ready to be mounted, and keeps it until `release`. Resolves with the file to mount. Rejects as the store does, when
   * the blob's descriptor has to come from there.
   */
  async acquire(digest: BlobDigest): Promise<string> {
    this.#cache.hold(digest);
    const blob = this.#cache.blobs.get(digest) ?? (await this.#openOnce(digest));
    this.#watch(blob);
    const { mechanism, filesDir } = this.#options;
    return mechanism === "fanotify" ? blob.path : join(filesDir, blob.file.name);
  }

  /** Nothing mounts the blob any more: it may leave the cache. */
  release(digest: BlobDigest): void {
    this.#cache.release(digest);
  }

  /** Of blobs that are here at all. */
  report(digests: readonly BlobDigest[]): readonly LazyReport[] {
    return digests.flatMap((digest) => {
      const blob = this.#cache.blobs.get(digest);
      if (blob === undefined) return [];
      const { counts } = blob.file;
      const hits = Atomics.load(counts, COUNT.hits);
      const misses = Atomics.load(counts, COUNT.misses);
      const { sizeBytes } = blob.descriptor;
      return { blob: digest, sizeBytes, fetchedBytes: blob.presentBytes, hits, misses };
    });
  }

  /** A blob has all its pieces. */
  complete(blob: CachedBlob): void {
    this.#server.complete(blob.path);
  }

  /** A blob leaves the cache. */
  forget(blob: CachedBlob): void {
    this.#server.remove(blob.file, blob.path);
    this.#watched.delete(blob.digest);
  }

  /** To be called every now and then, one call at a time: notes on the disk what came, keeps traces of runs that are over, tells of usage. */
  async tick(): Promise<void> {
    this.#tellUsage();
    await this.#cache.flush().catch((error: unknown) => this.#note(`the cache is not on the disk: ${String(error)}`));
    for (const [digest, watched] of this.#watched) {
      const touched = this.#cache.blobs.get(digest)?.file.touched;
      if (touched === undefined) continue;
      const count = touched.present;
      watched.quietTicks = count === watched.touched ? watched.quietTicks + 1 : 0;
      watched.touched = count;
      if (watched.quietTicks !== QUIET_TICKS) continue;
      const trace = mergeTraces(watched.trace, touched);
      if (trace === undefined) continue;
      watched.trace = trace;
      await writeTrace(this.#options.store, digest, trace, this.#deadline()).catch((error: unknown) =>
        this.#note(`the trace of blob ${digest} is not kept: ${String(error)}`),
      );
    }
  }

  async #fill(file: LazyFile, read: Read): Promise<void> {
    const blob = this.#cache.blobs.get(blobDigest(file.name));
    if (blob === undefined) throw new Error(`no blob ${file.name}`);
    const { first, end } = file.present.span(read.offset, read.length);
    const demand = this.#fetcher.demand(blob, first, end);
    this.#readAhead(file, read);
    await demand;
  }

  /** Has fetched what comes behind a read, and marks where more should be: readers are told of from there before they have to wait. */
  #readAhead(file: LazyFile, { offset, length }: Read): void {
    const blob = this.#cache.blobs.get(blobDigest(file.name));
    if (blob === undefined) return;
    const { first, end } = file.present.span(offset, length);
    for (let piece = first; piece < end; piece++) file.marks.remove(piece);
    const ahead = this.#watch(blob).readAhead.next(first, end, (piece) => file.touched.has(piece));
    if (ahead === undefined) return;
    this.#fetcher.hint(blob, ahead.first, Math.min(ahead.end, file.present.count), "ahead");
    if (ahead.first < file.present.count) file.marks.add(ahead.first);
  }

  #openOnce(digest: BlobDigest): Promise<CachedBlob> {
    const running = this.#opening.get(digest);
    if (running !== undefined) return running;
    const opening = this.#open(digest).finally(() => this.#opening.delete(digest));
    this.#opening.set(digest, opening);
    return opening;
  }

  async #open(digest: BlobDigest): Promise<CachedBlob> {
    const key = `blobs/${hexOf(digest)}/${BLOB_FILES.descriptor}`;
    const text = await readObject(this.#options.store, key, MAX_DESCRIPTOR_BYTES, this.#deadline());
    const blob = await this.#cache.add(digest, parseDescriptor(text.toString("utf8"), digest));
    this.#server.add(blob.file, blob.path);
    return blob;
  }

  /** From its first use on; what earlier runs touched is fetched at once. */
  #watch(blob: CachedBlob): Watched {
    const known = this.#watched.get(blob.digest);
    if (known !== undefined) return known;
    const watched: Watched = { readAhead: new ReadAhead(), trace: [], touched: 0, quietTicks: 0 };
    this.#watched.set(blob.digest, watched);
    if (blob.isComplete) return watched;
    this.#source.prepare(blob, this.#deadline());
    void this.#prefetch(blob, watched);
    return watched;
  }

  async #prefetch(blob: CachedBlob, watched: Watched): Promise<void> {
    try {
      watched.trace = await readTrace(this.#options.store, blob.digest, blob.file.present.count, this.#deadline());
      for (const [first, end] of watched.trace) this.#fetcher.hint(blob, first, end, "prefetch");
    } catch (error) {
      this.#note(`the trace of blob ${blob.digest} cannot be read: ${String(error)}`);
    }
  }

  #countFailure({ message }: SandboxError): void {
    const failedReads = this.#usage.failedReads + 1;
    this.#usage = { ...this.#usage, failedReads, lastFailure: { message, atMs: Date.now() } };
  }

  #tellUsage(): void {
    const { usedBytes: cachedBytes } = this.#cache;
    if (cachedBytes !== this.#usage.cachedBytes) this.#usage = { ...this.#usage, cachedBytes };
    if (this.#usage === this.#toldUsage) return;
    this.#toldUsage = this.#usage;
    this.#options.onEvent({ type: "usage", usage: this.#usage });
  }

  #judge(error: SandboxError | undefined): void {
    const isStore =
      error?.kind === "Unavailable" || error?.kind === "PermissionDenied" || error?.kind === "DeadlineExceeded";
    if (error !== undefined && !isStore) {
      this.#note(`data of a layer cannot be had: ${error.message}`);
      return;
    }
    if (this.#storeWorks === (error === undefined)) return;
    this.#storeWorks = error === undefined;
    this.#options.onEvent({ type: "store", works: this.#storeWorks, reason: error?.message ?? "" });
  }

  /** A failure that every read meets is told once in a while. */
  #note(text: string): void {
    const now = performance.now();
    if (now - (this.#notes.get(text) ?? Number.NEGATIVE_INFINITY) < NOTE_EVERY_MS) return;
    if (this.#notes.size >= MAX_NOTES) this.#notes.clear();
    this.#notes.set(text, now);
    this.#options.onEvent({ type: "note", text });
  }

  #deadline(): AbortSignal {
    return AbortSignal.timeout(this.#options.deadlineMs);
  }
}

/** Opens the cache. Nothing is served before `start`. */
export async function openLazyBlobs(options: LazyBlobsOptions): Promise<LazyBlobs> {
  const cache = await openBlobCache({
    dir: options.cacheDir,
    mechanism: options.mechanism,
    limitBytes: options.cacheBytes,
    onEvict: (blob) => blobs.forget(blob),
    onComplete: (blob) => blobs.complete(blob),
    log: (text) => options.onEvent({ type: "note", text }),
  });
  const blobs = new LazyBlobs(options, cache);
  return blobs;
}
