import type { Clock } from "#core/clock.ts";

/** How often is asked. */
const ASK_EVERY_MS = 5_000;
/** Unanswered questions after which a process is taken for hung. Not time: a node that stood still itself has asked nothing. */
const MAX_SILENT = 3;
/** The same for one that has never answered: it may be starting on a busy machine. */
const MAX_SILENT_AT_START = 12;

/** After so long a process that hangs is noticed. */
export const NOTICED_MS = ASK_EVERY_MS * (MAX_SILENT + 1);

/** What a watchdog watches. */
export interface Watched {
  readonly clock: Clock;
  /** Asks for a sign of life, which is told by `answered`. */
  ask(): void;
  /** Called once, when it gives none. */
  onHang(): void;
}

/** Asks a process again and again, until it does not answer any more or this is disposed. */
export class Watchdog implements Disposable {
  readonly #watched: Watched;
  #timer: Disposable;
  #silent = 0;
  #limit = MAX_SILENT_AT_START;

  constructor(watched: Watched) {
    this.#watched = watched;
    this.#timer = this.#later();
  }

  answered(): void {
    this.#silent = 0;
    this.#limit = MAX_SILENT;
  }

  [Symbol.dispose](): void {
    this.#timer[Symbol.dispose]();
  }

  #later(): Disposable {
    return this.#watched.clock.after(ASK_EVERY_MS, () => {
      if (this.#silent >= this.#limit) return this.#watched.onHang();
      this.#silent += 1;
      this.#watched.ask();
      this.#timer = this.#later();
    });
  }
}
