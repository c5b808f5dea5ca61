/**
 * The same bytes, ended by `signal`: an iteration that waits for a stalled sender rejects with the signal's reason at once.
 * `onBytes` hears how many bytes each piece brought.
 */
export async function* interruptible(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
  onBytes: (count: number) => void = () => undefined,
): AsyncIterable<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => undefined);
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  let isDone = false;
  try {
    for (;;) {
      signal.throwIfAborted();
      const next = await Promise.race([iterator.next(), aborted]);
      isDone = next.done === true;
      if (next.done === true) return;
      onBytes(next.value.length);
      yield next.value;
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    // Not awaited: a source that waits for its sender ends when it can.
    if (!isDone) iterator.return?.().catch(() => undefined);
  }
}
