/**
 * Runs the operations of one sandbox one after the other. What the guest reports goes before what callers ask: a verb must see
 * the state that the sandbox is in, not the one it was in when the caller asked.
 */
export class OperationQueue {
  readonly #events: (() => Promise<void>)[] = [];
  readonly #verbs: (() => Promise<void>)[] = [];
  #running = false;

  /** Resolves or rejects as `operation` does, once its turn has come. */
  run<T>(rank: "event" | "verb", operation: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const turn = () => operation().then(resolve, reject);
      (rank === "event" ? this.#events : this.#verbs).push(turn);
      if (!this.#running) void this.#drain();
    });
  }

  async #drain(): Promise<void> {
    this.#running = true;
    for (;;) {
      const turn = this.#events.shift() ?? this.#verbs.shift();
      if (turn === undefined) break;
      await turn();
    }
    this.#running = false;
  }
}
