import { closeSync, mkdirSync } from "node:fs";
import type { HelperCgroup } from "#host/cgroup/helpers.ts";
import { type Channel, hasChannel, openChannel, removeChannel } from "#host/lazy/channel.ts";
import { chooseMechanism } from "#host/lazy/choose.ts";
import { Filler } from "#host/lazy/filler.ts";
import type { Mechanism } from "#host/lazy/requests.ts";
import type { BlobDigest } from "../digest.ts";
import type { LazyAnswers, LazyCall, LazySetup, LazyStore } from "./filler-calls.ts";
import type { LazyEvent, LazyReport, LazyUsage } from "./lazy-blobs.ts";

/** How a node has lazy blobs. */
export interface LazyNodeOptions {
  /** Program of the filler, and words for it. */
  readonly words: readonly string[];
  readonly runDir: string;
  readonly cacheDir: string;
  readonly cacheBytes: number;
  readonly deadlineMs: number;
  readonly store: LazyStore;
  readonly cgroup: HelperCgroup;
  /** `undefined`: the better one that works here. What an earlier node's sandboxes use goes on as it was. */
  readonly mechanism?: Mechanism | undefined;
  readonly log: (line: string) => void;
}

/** How a node's data on demand fares. */
export interface LazyStatus extends LazyUsage {
  readonly cacheLimitBytes: number;
  /** Why data that is not here cannot be had at present, and since when: milliseconds since 1970. */
  readonly trouble?: { readonly reason: string; readonly sinceMs: number };
}

/** A filler that is being replaced takes a while. */
const ANSWER_MS = 30_000;

/** Lazy blobs as a node sees them: a filler does the work. */
export class LazyNode implements AsyncDisposable {
  readonly mechanism: Mechanism;
  /** What readers of mounts of earlier nodes got may be wrong: nobody served them for a while. */
  readonly hasGap: boolean;
  readonly #filler: Filler;
  readonly #log: (line: string) => void;
  readonly #cgroup: HelperCgroup;
  readonly #uses = new Map<BlobDigest, number>();
  readonly #cacheLimitBytes: number;
  #usage: LazyUsage = { cachedBytes: 0, failedReads: 0 };
  #trouble: LazyStatus["trouble"];

  /** Made by `openLazyNode`. */
  constructor(channel: Channel, options: LazyNodeOptions) {
    const { words, runDir, cgroup, cacheDir, cacheBytes, deadlineMs, store, log } = options;
    this.#cgroup = cgroup;
    this.#cacheLimitBytes = cacheBytes;
    this.mechanism = channel.mechanism;
    this.hasGap = channel.hasGap;
    this.#log = log;
    const setup = (): LazySetup => {
      const { mechanism } = channel;
      return { mechanism, runDir, cacheDir, cacheBytes, deadlineMs, store, held: [...this.#uses.keys()] };
    };
    this.#filler = new Filler(channel, {
      words,
      runDir,
      cgroups: cgroup.dirs,
      // It has a deadline of its own; this is for one that is broken.
      answerMs: ANSWER_MS + 2 * deadlineMs,
      setup: () => ({ ...setup() }),
      // The filler is this program too.
      onEvent: (event) => this.#note(event as LazyEvent),
      log,
    });
  }

  /** Of the filler, for tests. */
  get pid(): number {
    return this.#filler.pid;
  }

  /** As the filler told last, a second ago at most while anything changes. */
  get status(): LazyStatus {
    const trouble = this.#trouble === undefined ? {} : { trouble: this.#trouble };
    return { ...this.#usage, cacheLimitBytes: this.#cacheLimitBytes, ...trouble };
  }

  /** Mounts of an earlier node use these. To be called before anything is acquired. */
  adopt(blobs: readonly BlobDigest[]): void {
    for (const blob of blobs) this.#uses.set(blob, (this.#uses.get(blob) ?? 0) + 1);
  }

  /** The files to mount, in the same order; they stay until they are released as often. */
  async acquire(blobs: readonly BlobDigest[]): Promise<readonly string[]> {
    this.adopt(blobs);
    try {
      return await Promise.all(blobs.map((blob) => this.#ask({ call: "acquire", blob })));
    } catch (error) {
      this.release(blobs);
      throw error;
    }
  }

  /** A mount of these is gone. */
  release(blobs: readonly BlobDigest[]): void {
    for (const blob of blobs) {
      const uses = (this.#uses.get(blob) ?? 0) - 1;
      if (uses > 0) this.#uses.set(blob, uses);
      else if (this.#uses.delete(blob)) this.#tellReleased(blob);
    }
  }

  /** How much of these is here; nothing about those that never were lazy. */
  report(blobs: readonly BlobDigest[]): Promise<readonly LazyReport[]> {
    return this.#ask({ call: "report", blobs });
  }

  /** Nobody uses anything any more, whatever was acquired: the filler ends with this. */
  async end(): Promise<void> {
    this.#uses.clear();
    await this[Symbol.asyncDispose]();
  }

  /** The filler ends with this when nothing is in use any more; else it goes on for the next node. */
  async [Symbol.asyncDispose](): Promise<void> {
    const isKept = this.#uses.size > 0;
    this.#filler.keep(isKept);
    await this.#filler[Symbol.asyncDispose]();
    if (!isKept) await this.#cgroup.remove();
  }

  /** A filler that does not hear it has a blob in its cache for longer than it must. */
  #tellReleased(blob: BlobDigest): void {
    this.#ask({ call: "release", blob }).catch(() => undefined);
  }

  #ask<Call extends LazyCall>(call: Call): Promise<LazyAnswers[Call["call"]]> {
    // What a filler answers to a call is in the table of answers.
    return this.#filler.call(call) as Promise<LazyAnswers[Call["call"]]>;
  }

  #note(event: LazyEvent): void {
    if (event.type === "note") {
      this.#log(event.text);
      return;
    }
    if (event.type === "usage") {
      this.#usage = event.usage;
      return;
    }
    this.#trouble = event.works ? undefined : { reason: event.reason, sinceMs: Date.now() };
    this.#log(event.works ? "the store of layers answers again" : `layers cannot be fetched: ${event.reason}`);
  }
}

/** Takes over what an earlier node left, or begins. `FailedPrecondition` on a kernel that has neither mechanism. */
export async function openLazyNode(options: LazyNodeOptions): Promise<LazyNode> {
  mkdirSync(options.cacheDir, { recursive: true, mode: 0o700 });
  const mechanism = options.mechanism ?? chooseMechanism(options.cacheDir);
  return new LazyNode(await openChannel(options.runDir, mechanism), options);
}

/** Ends what an earlier node left, for a node that has no blobs on demand: what was mounted from them is lost. */
export async function endLazyNode(runDir: string): Promise<void> {
  if (!hasChannel(runDir)) return;
  const { descriptor } = await openChannel(runDir, "fanotify");
  closeSync(descriptor);
  removeChannel(runDir);
}
