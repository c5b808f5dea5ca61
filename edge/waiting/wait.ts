import type { Clock } from "#core/clock.ts";

/** Resolves when `promise` does or `waitMs` have passed; rejects with the signal's reason. `promise` never rejects. */
export function waitAtMost(
  promise: Promise<void>,
  waitMs: number,
  options: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<void> {
  const { clock, signal } = options;
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void) => {
      timer[Symbol.dispose]();
      signal.removeEventListener("abort", onAbort);
      settle();
    };
    const onAbort = () => finish(() => reject(signal.reason));
    const timer = clock.after(waitMs, () => finish(resolve));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    void promise.then(() => finish(resolve));
  });
}
