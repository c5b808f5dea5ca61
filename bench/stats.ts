/** The value that `share` of the values do not exceed, by nearest rank; NaN of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

/** The middle value. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Milliseconds of one run of `work`, on a clock that never steps. */
export async function timeMs(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** `p50 2.10, p90 2.64, p99 4.01 ms (200)`, for people. */
export function describeMs(values: readonly number[]): string {
  const [p50, p90, p99] = [0.5, 0.9, 0.99].map((share) => quantile(values, share).toFixed(2));
  return `p50 ${p50}, p90 ${p90}, p99 ${p99} ms (${values.length})`;
}

/** Runs `work` `count` times, `width` at a time; rejects on the first that fails, after those under way have ended. */
export async function inParallel<T>(count: number, width: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  let failure: { readonly error: unknown } | undefined;
  const lane = async () => {
    while (next < count && failure === undefined) {
      const index = next++;
      try {
        results[index] = await work(index);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
  if (failure !== undefined) throw failure.error;
  return results;
}
