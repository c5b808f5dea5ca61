import type { UsageView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { followLines } from "./follow.ts";

/** How often to look. */
export interface UsageOptions extends CallOptions {
  /** 1000 unless said otherwise, 100 at least. */
  readonly periodMs?: number;
}

/** Samples until the sandbox is removed. A connection that breaks is made again; what would have been seen meanwhile is not. */
export function followUsage(
  caller: Caller,
  path: string,
  { periodMs, ...options }: UsageOptions,
): AsyncGenerator<UsageView> {
  return followLines<UsageView>(caller, { ...options, path: `${path}/usage/stream`, query: { periodMs } });
}
