import type { Clock } from "#core/clock.ts";

interface Entry {
  readonly key: string;
  readonly atMs: number;
  readonly action: () => void;
}

/**
 * Any number of timers on one timer of the clock: a binary heap by due time. Setting a key again replaces its timer; the entry
 * it had stays in the heap until its time comes and is then skipped, so that moving a timer costs no search.
 */
export class Timers implements Disposable {
  readonly #clock: Clock;
  readonly #heap: Entry[] = [];
  readonly #current = new Map<string, Entry>();
  #armed: { readonly atMs: number; readonly timer: Disposable } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#current.size;
  }

  /** Runs `action` once at `atMs`, wall time; at once when that has passed. */
  set(key: string, atMs: number, action: () => void): void {
    const entry = { key, atMs, action };
    this.#current.set(key, entry);
    // Replaced entries are dropped by rebuilding once they are the larger part: the heap stays in proportion to the keys.
    if (this.#heap.length > 64 && this.#heap.length > 2 * this.#current.size) this.#rebuild();
    else this.#push(entry);
    this.#arm();
  }

  clear(key: string): void {
    this.#current.delete(key);
  }

  [Symbol.dispose](): void {
    this.#armed?.timer[Symbol.dispose]();
    this.#armed = undefined;
    this.#heap.length = 0;
    this.#current.clear();
  }

  #fire(): void {
    this.#armed = undefined;
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.atMs > this.#clock.now()) break;
      this.#pop();
      if (this.#current.get(next.key) !== next) continue;
      this.#current.delete(next.key);
      next.action();
    }
    this.#arm();
  }

  #arm(): void {
    const next = this.#heap[0];
    if (next === undefined || (this.#armed !== undefined && this.#armed.atMs <= next.atMs)) return;
    this.#armed?.timer[Symbol.dispose]();
    const timer = this.#clock.after(Math.max(0, next.atMs - this.#clock.now()), () => this.#fire());
    this.#armed = { atMs: next.atMs, timer };
  }

  #rebuild(): void {
    this.#heap.length = 0;
    for (const entry of this.#current.values()) this.#push(entry);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.push(entry) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || above.atMs <= entry.atMs) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const smaller = (heap[left + 1]?.atMs ?? Infinity) < (heap[left]?.atMs ?? Infinity) ? left + 1 : left;
      const below = heap[smaller];
      if (below === undefined || below.atMs >= last.atMs) break;
      heap[at] = below;
      at = smaller;
    }
    heap[at] = last;
  }
}
