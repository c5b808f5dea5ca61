/**
 * The control plane's only memory: small values under ordered keys, changed by compare-and-swap.
 *
 * A key is text without NUL; values are text (JSON of their owner). Every write gives its key a new revision, higher than
 * any revision before it in the whole store, so a key that was deleted and made again never matches an old one. The calls
 * are asynchronous because a cluster keeps them elsewhere; each is atomic.
 */
export interface StateStore extends AsyncDisposable {
  get(key: string): Promise<Entry | undefined>;
  /** Entries whose key starts with `prefix`, by key in the order of UTF-8 bytes, after `page.after`, at most `page.limit`. */
  list(prefix: string, page?: Page): Promise<readonly Entry[]>;
  /** The new revision; undefined, and nothing written, when the key does not have the `expected` revision any more. */
  put(key: string, value: string, expected: Expected): Promise<number | undefined>;
  /** True when the key is gone; false, and nothing done, when it exists with another revision than `expected`. */
  delete(key: string, expected: number | "any"): Promise<boolean>;
}

/** `absent`: only when there is no such key. A number: only over that revision. `any`: whatever is there. */
export type Expected = number | "absent" | "any";

/** A value and the revision it got when it was written. */
export interface Entry {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
}

/** Which part of a list to return; without `limit` all of it. */
export interface Page {
  readonly after?: string;
  readonly limit?: number;
}
