import type { Clock } from "#core/clock.ts";
import { timeoutError } from "#core/rpc/deadline.ts";

/** Runs `work` with a signal that fires after `limitMs`, as `DeadlineExceeded`, or with `leaving`, for its reason. */
export async function within<T>(
  options: { readonly clock: Clock; readonly limitMs: number; readonly leaving: AbortSignal },
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { leaving } = options;
  const deadline = new AbortController();
  const leave = () => deadline.abort(leaving.reason);
  leaving.addEventListener("abort", leave, { once: true });
  using _timer = options.clock.after(options.limitMs, () => deadline.abort(timeoutError()));
  try {
    leaving.throwIfAborted();
    return await work(deadline.signal);
  } finally {
    leaving.removeEventListener("abort", leave);
  }
}
