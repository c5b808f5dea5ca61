import type { Clock } from "#core/clock.ts";

/** Silent intervals after which the peer counts as dead. */
const PATIENCE = 3;

/** Asks a silent peer for a sign of life, and says when it has given none for three intervals. */
export class Heartbeat implements Disposable {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #actions: { ping(): void; dead(): void };
  #silent = 0;
  #dueAtMs = 0;
  #timer: Disposable | undefined;

  constructor(clock: Clock, everyMs: number, actions: { ping(): void; dead(): void }) {
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#actions = actions;
    this.#arm();
  }

  /** The peer said something. */
  heard(): void {
    this.#silent = 0;
  }

  [Symbol.dispose](): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#dueAtMs = this.#clock.now() + this.#everyMs;
    this.#timer = this.#clock.after(this.#everyMs, () => this.#beat());
  }

  #beat(): void {
    // A beat that comes late means that this process stood still: the peer's frames may lie unread, so it is not blamed.
    const late = this.#clock.now() - this.#dueAtMs > this.#everyMs / 2;
    if (!late) this.#silent += 1;
    if (this.#silent > PATIENCE) {
      this.#actions.dead();
      return;
    }
    if (this.#silent > 0) this.#actions.ping();
    this.#arm();
  }
}
