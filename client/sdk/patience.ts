import { DsecError, TransportError } from "./errors.ts";

/** That a server which has answered before does not answer now. */
export interface Away {
  /** Why the last attempt failed. */
  readonly error: DsecError;
  /** Since the connection broke; 0 the first time that it is told. */
  readonly awayMs: number;
  /** For how long attempts go on. */
  readonly limitMs: number;
}

/** How long to stay with a server that is away. */
export interface PatienceOptions {
  readonly limitMs: number;
  /** Whether this client has ever been answered. Where nobody was, a wrong name say, nobody is waited for. */
  readonly isKnown: () => boolean;
  /** Told of each attempt that failed and is followed by another. */
  readonly onAway?: ((away: Away) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** The time that passes, for tests. */
  readonly clock?: PatienceClock;
}

/** Time as patience needs it. */
export interface PatienceClock {
  now(): number;
  /** Rejects with the signal's reason. */
  pause(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
}

const FIRST_PAUSE_MS = 100;
/** A server that is back is found within so long. */
const LONGEST_PAUSE_MS = 2_000;
/** A connection that stood for so long was one, also when nothing came over it. */
const STEADY_MS = 5_000;

/**
 * For whoever follows or waits for something that lives on the server: a connection that breaks is made again, until the server has
 * been away for the limit. What counts is the time without a connection or with connections that bring nothing, not the attempts.
 */
export class Patience {
  readonly #options: PatienceOptions;
  readonly #clock: PatienceClock;
  #attempts = 0;
  #brokeAtMs: number | undefined;
  #answeredAtMs: number | undefined;

  constructor(options: PatienceOptions) {
    this.#options = options;
    this.#clock = options.clock ?? { now: () => performance.now(), pause };
  }

  /** A connection stands; nothing has come over it yet. */
  answered(): void {
    this.#answeredAtMs = this.#clock.now();
  }

  /** Something came: what broke before is forgotten. */
  progressed(): void {
    this.#attempts = 0;
    this.#brokeAtMs = undefined;
  }

  /** Resolves when it is time for another attempt; rejects with the error when there shall be none, or with the signal's reason. */
  async broke(error: unknown): Promise<void> {
    const { limitMs, onAway, signal } = this.#options;
    if (!this.#isPassing(error)) throw error;
    const now = this.#clock.now();
    if (this.#answeredAtMs !== undefined && now - this.#answeredAtMs >= STEADY_MS) this.progressed();
    this.#answeredAtMs = undefined;
    this.#brokeAtMs ??= now;
    const awayMs = now - this.#brokeAtMs;
    if (awayMs >= limitMs) throw givenUp(error, awayMs);
    onAway?.({ error, awayMs, limitMs });
    await this.#clock.pause(Math.min(this.#nextPauseMs(), limitMs - awayMs), signal);
  }

  #isPassing(error: unknown): error is DsecError {
    return error instanceof DsecError && error.kind === "Unavailable" && this.#options.isKnown();
  }

  /** At once the first time. Then with jitter: clients that were cut off together do not come back together. */
  #nextPauseMs(): number {
    const attempt = this.#attempts++;
    if (attempt === 0) return 0;
    return (0.5 + Math.random() / 2) * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1));
  }
}

function givenUp(error: DsecError, awayMs: number): DsecError {
  const { hint, details } = error;
  return new TransportError(`${error.message}, for ${Math.round(awayMs / 1_000)} s now`, {
    hint,
    details: { ...details, awayMs },
    cause: error,
  });
}

/** Waits, unless the signal ends the wait with its reason. */
export function pause(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, delayMs);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
