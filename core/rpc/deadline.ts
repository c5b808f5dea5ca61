import type { Clock } from "#core/clock.ts";

/** A signal that also says when it will abort, so that the time left can travel to the node that does the work. */
export interface DeadlineSignal extends AbortSignal {
  readonly deadlineAtMs: number;
}

/** Aborts with a `TimeoutError` after `timeoutMs`, or with its parent. Disposing frees the timer. */
export class Deadline implements Disposable {
  readonly signal: DeadlineSignal;
  readonly #timer: Disposable;
  readonly #detach: () => void;

  constructor(clock: Clock, timeoutMs: number, parent?: AbortSignal) {
    const controller = new AbortController();
    const ownMs = clock.now() + timeoutMs;
    const atMs = Math.min(ownMs, parent === undefined ? ownMs : (deadlineOf(parent) ?? ownMs));
    this.signal = Object.assign(controller.signal, { deadlineAtMs: atMs });
    this.#timer = clock.after(timeoutMs, () => controller.abort(timeoutError()));
    const onAbort = () => controller.abort(parent?.reason);
    if (parent?.aborted) onAbort();
    else parent?.addEventListener("abort", onAbort, { once: true });
    this.#detach = () => parent?.removeEventListener("abort", onAbort);
  }

  [Symbol.dispose](): void {
    this.#timer[Symbol.dispose]();
    this.#detach();
  }
}

/** Wall time at which the signal aborts, when its maker said so. */
export function deadlineOf(signal: AbortSignal): number | undefined {
  return "deadlineAtMs" in signal && typeof signal.deadlineAtMs === "number" ? signal.deadlineAtMs : undefined;
}

/** What `asSandboxError` turns into `DeadlineExceeded`. */
export function timeoutError(): DOMException {
  return new DOMException("the deadline passed", "TimeoutError");
}
