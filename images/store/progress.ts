import type { Clock } from "#core/clock.ts";

/** Watches that something goes on: its signal aborts when nobody said so for `stallMs`, or with the caller's signal. */
export class Progress implements Disposable {
  readonly #stalled = new AbortController();
  readonly #clock: Clock;
  readonly #stallMs: number;
  #timer: Disposable | undefined;
  /** For what is being watched. */
  readonly signal: AbortSignal;

  constructor(clock: Clock, stallMs: number, caller: AbortSignal) {
    this.#clock = clock;
    this.#stallMs = stallMs;
    this.signal = AbortSignal.any([caller, this.#stalled.signal]);
    this.made();
  }

  /** True once the time without progress was over. */
  get isStalled(): boolean {
    return this.#stalled.signal.aborted;
  }

  /** There was progress: time starts again. */
  made(): void {
    this.pause();
    this.#timer = this.#clock.after(this.#stallMs, () => this.#stalled.abort(new Error("no progress")));
  }

  /** Time stands still: whoever reads is thinking, nothing is being waited for. */
  pause(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  /** Waits for `work`, but no longer than there is progress. What goes on beyond that is abandoned. */
  async of<T>(work: Promise<T>): Promise<T> {
    this.made();
    const { promise, reject } = Promise.withResolvers<never>();
    const abort = () => reject(this.signal.reason);
    this.signal.addEventListener("abort", abort, { once: true });
    try {
      this.signal.throwIfAborted();
      return await Promise.race([work, promise]);
    } finally {
      this.signal.removeEventListener("abort", abort);
      work.catch(() => undefined);
      promise.catch(() => undefined);
      this.pause();
    }
  }

  [Symbol.dispose](): void {
    this.pause();
  }
}
