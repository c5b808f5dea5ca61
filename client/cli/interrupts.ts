import type { Io } from "./io.ts";

const NUMBERS: Readonly<Partial<Record<NodeJS.Signals, number>>> = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };

/**
 * What signals mean while a command is attached: the first SIGINT goes to the command; the second one, SIGTERM and SIGHUP
 * mean that the person leaves. Before there is a command the first one already does.
 */
export class Interrupts implements Disposable {
  /** Passes a signal on to the command; set once it runs. */
  forward: ((name: "SIGINT") => Promise<void>) | undefined;
  readonly #leave = new AbortController();
  readonly #handlers: Disposable[];
  #left: number | undefined;
  #forwarded = false;

  constructor(io: Io) {
    this.#handlers = [
      io.onSignal("SIGINT", () => this.#interrupt()),
      io.onSignal("SIGTERM", () => this.#depart("SIGTERM")),
      io.onSignal("SIGHUP", () => this.#depart("SIGHUP")),
    ];
  }

  /** Fires when the person leaves. */
  get signal(): AbortSignal {
    return this.#leave.signal;
  }

  /** The exit status for a person who left, as for any program that a signal ended; undefined while nobody has. */
  get left(): number | undefined {
    return this.#left;
  }

  [Symbol.dispose](): void {
    for (const handler of this.#handlers) handler[Symbol.dispose]();
  }

  #interrupt(): void {
    if (this.forward === undefined || this.#forwarded) {
      this.#depart("SIGINT");
      return;
    }
    this.#forwarded = true;
    // A command that cannot be told any more is one to leave.
    this.forward("SIGINT").catch(() => this.#depart("SIGINT"));
  }

  #depart(name: "SIGINT" | "SIGTERM" | "SIGHUP"): void {
    this.#left ??= 128 + (NUMBERS[name] ?? 0);
    this.#leave.abort(new DOMException(`ended by ${name}`, "AbortError"));
  }
}
