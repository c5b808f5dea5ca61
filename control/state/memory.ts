import type { Entry, Expected, Page, StateStore } from "./store.ts";

/** State that ends with the process, for tests. */
export class MemoryState implements StateStore {
  readonly #entries = new Map<string, Entry>();
  #revision = 0;

  async get(key: string): Promise<Entry | undefined> {
    return this.#entries.get(key);
  }

  async list(prefix: string, page: Page = {}): Promise<readonly Entry[]> {
    return [...this.#entries.values()]
      .filter(({ key }) => key.startsWith(prefix) && (page.after === undefined || byBytes(key, page.after) > 0))
      .sort((a, b) => byBytes(a.key, b.key))
      .slice(0, page.limit);
  }

  async put(key: string, value: string, expected: Expected): Promise<number | undefined> {
    const present = this.#entries.get(key)?.revision;
    if (expected !== "any" && present !== (expected === "absent" ? undefined : expected)) return undefined;
    this.#revision += 1;
    this.#entries.set(key, { key, value, revision: this.#revision });
    return this.#revision;
  }

  async delete(key: string, expected: number | "any"): Promise<boolean> {
    const present = this.#entries.get(key)?.revision;
    if (present !== undefined && expected !== "any" && present !== expected) return false;
    this.#entries.delete(key);
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#entries.clear();
  }
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
