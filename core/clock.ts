/** Time as an argument: daemons get `systemClock`, tests one they move by hand. */
export interface Clock {
  /** Wall time, milliseconds since 1970. */
  now(): number;
  /** Runs `action` once, `delayMs` from now, unless disposed before. Never keeps the process alive. */
  after(delayMs: number, action: () => void): Disposable;
}

/** The clock of the machine. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(delayMs, action) {
    // setTimeout fires at once for delays of more than 2^31 - 1 ms.
    const timer = setTimeout(action, Math.min(delayMs, 2 ** 31 - 1));
    timer.unref();
    return { [Symbol.dispose]: () => clearTimeout(timer) };
  },
};

/** How often a process looks whether it stood still: longer pauses than two looks are no time of its own. */
const LOOK_MS = 250;

/**
 * The time in which this process could act, in milliseconds. While it has no processor, or is busy with one long thing, what others say lies unread: who
 * counts their silence must not count that.
 */
export class AwakeTime implements Disposable {
  readonly #clock: Clock;
  #awakeMs = 0;
  #lookedAtMs: number;
  #timer: Disposable | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lookedAtMs = clock.now();
    this.#look();
  }

  now(): number {
    return this.#awakeMs + Math.min(Math.max(0, this.#clock.now() - this.#lookedAtMs), 2 * LOOK_MS);
  }

  [Symbol.dispose](): void {
    this.#timer?.[Symbol.dispose]();
  }

  #look(): void {
    this.#awakeMs = this.now();
    this.#lookedAtMs = this.#clock.now();
    this.#timer = this.#clock.after(LOOK_MS, () => this.#look());
  }
}

/** A clock that stands still until `advance` is called; due actions run in the order of their time. */
export class ManualClock implements Clock {
  #nowMs: number;
  #due: { readonly atMs: number; readonly action: () => void }[] = [];

  constructor(startMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
  }

  now(): number {
    return this.#nowMs;
  }

  after(delayMs: number, action: () => void): Disposable {
    const entry = { atMs: this.#nowMs + delayMs, action };
    this.#due.push(entry);
    return {
      [Symbol.dispose]: () => {
        this.#due = this.#due.filter((other) => other !== entry);
      },
    };
  }

  /** Time passes in which nothing is done: what was due is late. */
  stall(byMs: number): void {
    this.#nowMs += byMs;
  }

  advance(byMs: number): void {
    const endMs = this.#nowMs + byMs;
    for (;;) {
      const next = this.#due.filter((entry) => entry.atMs <= endMs).sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.#due = this.#due.filter((entry) => entry !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.action();
    }
    this.#nowMs = endMs;
  }
}
