import type { WatchView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { followLines } from "./follow.ts";

/** What a watch takes. */
export interface WatchOptions extends CallOptions {
  /** Directories below as well, those to come included. */
  readonly recursive?: boolean;
  /** With whose rights; the sandbox's user unless said otherwise. */
  readonly user?: string;
}

/** See `Files.watch`. */
export async function* watchFiles(
  caller: Caller,
  call: string,
  path: string | Uint8Array,
  { recursive, user, ...options }: WatchOptions,
): AsyncGenerator<WatchView> {
  let hasBegun = false;
  for await (const event of followLines<WatchView>(caller, {
    ...options,
    path: call,
    query: { path, recursive, user },
  })) {
    yield hasBegun && event.type === "ready" ? { type: "overflow" } : event;
    hasBegun = true;
  }
}
