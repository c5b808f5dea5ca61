import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** A process that dies at once again and again must not keep the node busy. */
const LONGEST_PAUSE_MS = 5_000;
const STEADY_MS = 10_000;
/** Time to end by itself. */
const END_MS = 2_000;

/** What is followed. */
export interface FollowerOptions {
  /** Spawns one. */
  spawn(): ChildProcess;
  /** It runs, under this id. */
  started(pid: number): void;
  /** It has ended, and another takes its place. */
  followed(): void;
}

/** One process at a time: another follows each that ends, until nobody wants them any more. */
export class Follower {
  readonly #options: FollowerOptions;
  #child: ChildProcess | undefined;
  #closing = false;
  #pauseMs = 0;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** 0 while there is none. */
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Starts the first. */
  start(): ChildProcess {
    const child = this.#options.spawn();
    child.unref();
    this.#child = child;
    const startedAtMs = performance.now();
    child.once("error", () => undefined);
    child.once("spawn", () => this.#options.started(child.pid ?? 0));
    child.once("exit", () => this.#followed(performance.now() - startedAtMs));
    return child;
  }

  /** None follows any more; the one that runs goes on. */
  leave(): void {
    this.#closing = true;
  }

  /** Resolves when the last has ended, by itself or because its time is up, which it is at once with 0. */
  async end(limitMs = END_MS): Promise<void> {
    this.leave();
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // Else a process with nothing else to do would be over before it has heard of the end.
    child.ref();
    const ended = once(child, "exit");
    const late = setTimeout(() => child.kill("SIGKILL"), limitMs);
    await ended;
    clearTimeout(late);
  }

  #followed(aliveMs: number): void {
    if (this.#closing) return;
    this.#pauseMs = aliveMs > STEADY_MS ? 0 : Math.min(LONGEST_PAUSE_MS, 2 * this.#pauseMs + 1);
    this.#options.followed();
    setTimeout(() => {
      if (!this.#closing) this.start();
    }, this.#pauseMs).unref();
  }
}
