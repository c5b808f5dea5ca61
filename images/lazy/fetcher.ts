import { setTimeout as delay } from "node:timers/promises";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import type { BlobSource, NamedBlob } from "./blob-source.ts";

/** How much a piece is wanted: by a reader that waits, by one that will come, by one that came in an earlier run. */
const PRIORITIES = ["demand", "ahead", "prefetch"] as const;
type Priority = (typeof PRIORITIES)[number];

/** A blob whose pieces are fetched. */
export interface Fetchable extends NamedBlob {
  has(piece: number): boolean;
  /** Keeps verified pieces; `bytes` are the caller's again afterwards. */
  write(first: number, bytes: Buffer): Promise<void>;
}

/** What bounds a fetcher. */
export interface FetcherOptions {
  readonly source: BlobSource;
  /** Requests at a time. */
  readonly requests: number;
  /** Pieces of one request. With `requests` and the size of a piece it bounds the memory that is used. */
  readonly piecesPerRequest: number;
  /** How long a reader waits before it gets an error. */
  readonly deadlineMs: number;
  /** Told how every attempt to get something ended: `undefined` for well. */
  onOutcome(error: SandboxError | undefined): void;
}

interface Job {
  readonly blob: Fetchable;
  readonly piece: number;
  priority: Priority;
  isRunning: boolean;
  /** Readers. */
  waiting: number;
  readonly done: PromiseWithResolvers<void>;
}

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;
/** Kept free for readers that wait. */
const RESERVED_REQUESTS = 2;
/** Pieces wanted by no reader yet; what comes on top is not fetched ahead. */
const MAX_SPECULATIVE = 65_536;

/** Brings pieces of blobs: each once, however many want it; first what readers wait for. */
export class Fetcher {
  readonly #options: FetcherOptions;
  readonly #jobs = new Map<Fetchable, Map<number, Job>>();
  readonly #queues: Readonly<Record<Priority, Set<Job>>> = { demand: new Set(), ahead: new Set(), prefetch: new Set() };
  /** For answers, used again and again; pieces of all blobs are equally long. */
  readonly #buffers: Buffer[] = [];
  #running = 0;

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  /** Resolves when the pieces are there. Within the deadline it rejects: with `DeadlineExceeded`, or with what no retry would mend. */
  async demand(blob: Fetchable, first: number, end: number): Promise<void> {
    const jobs: Job[] = [];
    for (let piece = first; piece < end; piece++) if (!blob.has(piece)) jobs.push(this.#want(blob, piece, "demand"));
    for (const job of jobs) job.waiting += 1;
    this.#dispatch();
    const late = new AbortController();
    try {
      await Promise.race([Promise.all(jobs.map((job) => job.done.promise)), this.#deadline(late.signal)]);
    } finally {
      late.abort();
      for (const job of jobs) this.#leave(job);
    }
  }

  /** Has the pieces fetched when nobody needs the store more urgently. A failure is no error: whoever reads them tries again. */
  hint(blob: Fetchable, first: number, end: number, priority: Exclude<Priority, "demand">): void {
    for (let piece = first; piece < end && this.#queues[priority].size < MAX_SPECULATIVE; piece++) {
      if (!blob.has(piece)) this.#want(blob, piece, priority);
    }
    this.#dispatch();
  }

  #want(blob: Fetchable, piece: number, priority: Priority): Job {
    const jobs = this.#jobs.get(blob) ?? new Map<number, Job>();
    this.#jobs.set(blob, jobs);
    const known = jobs.get(piece);
    if (known !== undefined) {
      this.#raise(known, priority);
      return known;
    }
    const job = { blob, piece, priority, isRunning: false, waiting: 0, done: Promise.withResolvers<void>() };
    // Nobody may wait for it when it fails.
    job.done.promise.catch(() => undefined);
    jobs.set(piece, job);
    this.#queues[priority].add(job);
    return job;
  }

  #raise(job: Job, priority: Priority): void {
    if (job.isRunning || PRIORITIES.indexOf(priority) >= PRIORITIES.indexOf(job.priority)) return;
    this.#queues[job.priority].delete(job);
    job.priority = priority;
    this.#queues[priority].add(job);
  }

  /** A reader has got it or has given up; what nobody waits for any more makes room. */
  #leave(job: Job): void {
    job.waiting -= 1;
    if (job.waiting > 0 || job.isRunning || !this.#queues.demand.delete(job)) return;
    this.#forget(job);
  }

  #forget({ blob, piece }: Job): void {
    const jobs = this.#jobs.get(blob);
    jobs?.delete(piece);
    if (jobs?.size === 0) this.#jobs.delete(blob);
  }

  #dispatch(): void {
    const { requests } = this.#options;
    for (const priority of PRIORITIES) {
      const width = priority === "demand" ? requests : requests - RESERVED_REQUESTS;
      for (const job of this.#queues[priority]) {
        if (this.#running >= width) return;
        // An earlier round of this loop may have taken it along.
        if (!job.isRunning) void this.#run(this.#withNeighbours(job));
      }
    }
  }

  /** The pieces behind it that are wanted as much or more: one request costs less than many. */
  #withNeighbours(job: Job): readonly Job[] {
    const run = [job];
    const jobs = this.#jobs.get(job.blob);
    while (run.length < this.#options.piecesPerRequest) {
      const next = jobs?.get(job.piece + run.length);
      if (next === undefined || next.isRunning) break;
      if (PRIORITIES.indexOf(next.priority) > PRIORITIES.indexOf(job.priority)) break;
      run.push(next);
    }
    for (const each of run) {
      each.isRunning = true;
      this.#queues[each.priority].delete(each);
    }
    return run;
  }

  async #run(jobs: readonly Job[]): Promise<void> {
    this.#running += 1;
    try {
      await this.#attempts(jobs);
      for (const job of jobs) job.done.resolve();
    } catch (error) {
      for (const job of jobs) job.done.reject(error);
    }
    for (const job of jobs) this.#forget(job);
    this.#running -= 1;
    this.#dispatch();
  }

  /** Goes on as long as a reader waits and another attempt may succeed. */
  async #attempts(jobs: readonly Job[]): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        await this.#fetch(jobs);
        this.#options.onOutcome(undefined);
        return;
      } catch (cause) {
        const error = asSandboxError(cause);
        this.#options.onOutcome(error);
        if (error.retry !== "backoff" || !jobs.some((job) => job.waiting > 0)) throw error;
      }
      await delay(pauseMs);
    }
  }

  async #fetch(jobs: readonly Job[]): Promise<void> {
    const [job] = jobs;
    if (job === undefined) return;
    const { blob, piece: first } = job;
    const { pieceBytes, sizeBytes } = blob.descriptor;
    const { source, piecesPerRequest, deadlineMs } = this.#options;
    const buffer = this.#buffers.pop() ?? Buffer.allocUnsafeSlow(piecesPerRequest * pieceBytes);
    const bytes = buffer.subarray(0, Math.min((first + jobs.length) * pieceBytes, sizeBytes) - first * pieceBytes);
    try {
      await source.read(blob, first, bytes, AbortSignal.timeout(deadlineMs));
      await blob.write(first, bytes);
    } finally {
      this.#buffers.push(buffer);
    }
  }

  async #deadline(cancelled: AbortSignal): Promise<void> {
    const { deadlineMs } = this.#options;
    await delay(deadlineMs, undefined, { signal: cancelled }).catch(() => undefined);
    if (cancelled.aborted) return;
    throw new SandboxError("DeadlineExceeded", `data of a layer did not come within ${deadlineMs / 1000} s`, {
      hint: "dsec status tells whether the store answers",
    });
  }
}
