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
  // One rejecter a step: racing each step against one lasting promise would keep every piece alive through it.
  let giveUp: (reason: unknown) => void = () => undefined;
  const onAbort = (): void => giveUp(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  let isDone = false;
  try {
    for (;;) {
      signal.throwIfAborted();
      const next = await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        giveUp = reject;
        iterator.next().then(resolve, reject);
      });
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

/**
 * The output of a program, and why the program failed if it did: that is what its caller wants to know, not where the output
 * stopped.
 */
export async function* untilFinished(
  output: AsyncIterable<Uint8Array>,
  finished: Promise<void>,
): AsyncIterable<Uint8Array> {
  try {
    yield* output;
  } catch (error) {
    await finished;
    throw error;
  }
  await finished;
}
