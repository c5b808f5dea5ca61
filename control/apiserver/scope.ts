import type { IncomingMessage, ServerResponse } from "node:http";
import { SandboxError } from "#core/errors.ts";

/** The longest time limit of a call; a longer one is cut to it, and the reply says so. */
const MAX_TIMEOUT_MS = 3_600_000;
/** What is left for the answer's way back when a wait ends at the deadline. */
const ANSWER_RESERVE_MS = 250;

/**
 * The life of one call: ends with its time limit or with the client's connection. One timer a call, no signal but this.
 * A streaming call's limit starts again with each piece of progress.
 */
export class CallScope implements Disposable {
  /** In force; undefined: no limit. */
  readonly timeoutMs: number | undefined;
  readonly #controller = new AbortController();
  readonly #response: ServerResponse;
  readonly #onClose: () => void;
  readonly #endsAtMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, defaultMs: number | undefined) {
    this.timeoutMs = timeoutOf(request.headers["dsec-timeout-ms"]) ?? defaultMs;
    this.#endsAtMs = performance.now() + (this.timeoutMs ?? Number.POSITIVE_INFINITY);
    this.#response = response;
    this.#onClose = () => {
      if (!response.writableFinished) this.#controller.abort(new SandboxError("Cancelled", "the client left"));
      this[Symbol.dispose]();
    };
    response.once("close", this.#onClose);
    if (this.timeoutMs === undefined) return;
    response.setHeader("dsec-timeout-ms", this.timeoutMs);
    this.#timer = setTimeout(() => this.#expire(), this.timeoutMs);
    this.#timer.unref();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something moved: a streaming call has its whole time again. */
  progress(): void {
    this.#timer?.refresh();
  }

  /** A wait that ends in time for its answer to reach the client before the deadline. */
  withinDeadline(waitMs: number): number {
    const leftMs = this.#endsAtMs - performance.now();
    return Math.max(0, Math.min(waitMs, Math.floor(leftMs - Math.min(ANSWER_RESERVE_MS, leftMs / 2))));
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#response.off("close", this.#onClose);
  }

  #expire(): void {
    const message = `the call's time limit of ${this.timeoutMs} ms passed`;
    this.#controller.abort(new SandboxError("DeadlineExceeded", message, { hint: "raise Dsec-Timeout-Ms" }));
  }
}

/** Settles with `work`, or rejects with the signal's reason: a handler that ignores its signal must not hold the call. */
export function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

function timeoutOf(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  const timeoutMs = typeof header === "string" && /^\d{1,12}$/.test(header) ? Number(header) : 0;
  if (timeoutMs >= 1) return Math.min(timeoutMs, MAX_TIMEOUT_MS);
  throw new SandboxError(
    "InvalidArgument",
    "the header Dsec-Timeout-Ms must be a whole number of milliseconds from 1 up",
    {
      details: { field: "Dsec-Timeout-Ms" },
    },
  );
}
