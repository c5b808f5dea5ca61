import { setImmediate } from "node:timers/promises";

/** How long the event loop is kept at a stretch: what is read already comes without a wait. */
const TURN_MS = 5;

/** Gives the event loop its turns, in work that may never wait. */
export class Stretch {
  readonly #signal: AbortSignal;
  #startedMs = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** To be called now and then. Rejects with the reason of the signal. */
  async pause(): Promise<void> {
    this.#signal.throwIfAborted();
    if (performance.now() - this.#startedMs < TURN_MS) return;
    await setImmediate();
    this.#signal.throwIfAborted();
    this.#startedMs = performance.now();
  }
}
