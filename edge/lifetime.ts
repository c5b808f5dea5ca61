import type { Lifetime } from "#core/sandbox.ts";
import type { Timers } from "#edge/waiting/timers.ts";

/** What the watch of one sandbox reads each time it looks. */
export interface LifetimeFacts {
  readonly createdAtMs: number;
  readonly lifetime: Lifetime;
  /** Undefined while something runs in it or somebody talks to it. */
  readonly idleSinceMs: number | undefined;
}

/**
 * Ends a sandbox when its time is over. Activity moves no timer: the one that is set looks again when it fires, and waits for
 * the rest, so that a command costs nothing here.
 */
export class LifetimeWatch implements Disposable {
  readonly #timers: Timers;
  readonly #key: string;
  readonly #options: { now(): number; facts(): LifetimeFacts; expire(reason: string): void };

  constructor(
    timers: Timers,
    key: string,
    options: { now(): number; facts(): LifetimeFacts; expire(reason: string): void },
  ) {
    this.#timers = timers;
    this.#key = key;
    this.#options = options;
  }

  /** Looks now, and again when the time may be over; called again after the limits have changed. */
  look(): void {
    const nowMs = this.#options.now();
    const { createdAtMs, lifetime, idleSinceMs } = this.#options.facts();
    const overMs = lifetime.maxLifetimeMs === undefined ? Infinity : createdAtMs + lifetime.maxLifetimeMs;
    const idleMs = lifetime.idleTimeoutMs === undefined ? Infinity : (idleSinceMs ?? nowMs) + lifetime.idleTimeoutMs;
    if (overMs <= nowMs) this.#options.expire(`its lifetime of ${lifetime.maxLifetimeMs} ms is over`);
    else if (idleMs <= nowMs) this.#options.expire(`it was idle for ${lifetime.idleTimeoutMs} ms`);
    else if (Math.min(overMs, idleMs) === Infinity) this.#timers.clear(this.#key);
    else this.#timers.set(this.#key, Math.min(overMs, idleMs), () => this.look());
  }

  [Symbol.dispose](): void {
    this.#timers.clear(this.#key);
  }
}
