/**
 * Makes many waits end when one thing happens. `Promise.race` against a long-lived promise would leave a reaction behind with
 * every wait; this leaves nothing.
 */
export class Interruption {
  readonly #waits = new Set<(error: unknown) => void>();
  #fired: { readonly error: unknown } | undefined;

  /** Rejects every wait, those to come too. The first call counts. */
  fire(error: unknown): void {
    if (this.#fired !== undefined) return;
    this.#fired = { error };
    for (const reject of this.#waits) reject(error);
    this.#waits.clear();
  }

  /** Settles as `promise` does, or rejects when the interruption fires first. */
  guard<T>(promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#fired === undefined) this.#waits.add(reject);
      else reject(this.#fired.error);
      promise.then(resolve, reject).finally(() => this.#waits.delete(reject));
    });
  }
}
