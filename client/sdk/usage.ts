import type { ErrorBody, UsageView } from "#api/index.ts";
import { type Caller, type CallOptions, pause } from "./caller.ts";
import { errorFromReply, TransportError } from "./errors.ts";
import { lines } from "./lines.ts";

/** How often to look. */
export interface UsageOptions extends CallOptions {
  /** 1000 unless said otherwise, 100 at least. */
  readonly periodMs?: number;
}

/** Breaks in a row, without a sample between them, before a reader gives up. */
const BREAKS = 6;
const FIRST_PAUSE_MS = 100;

/** Samples until the sandbox is removed. A connection that breaks is made again; what would have been seen meanwhile is not. */
export async function* followUsage(
  caller: Caller,
  path: string,
  { periodMs, signal, timeoutMs }: UsageOptions,
): AsyncGenerator<UsageView> {
  for (let breaks = 0; ; ) {
    try {
      const reply = await caller.open({
        method: "GET",
        path: `${path}/usage/stream`,
        query: { periodMs },
        signal,
        timeoutMs,
      });
      try {
        for await (const line of lines(reply.body)) {
          const sample = JSON.parse(line) as UsageView | ErrorBody;
          if ("error" in sample) throw errorFromReply(500, line);
          breaks = 0;
          yield sample;
        }
        return;
      } finally {
        reply.discard();
      }
    } catch (error) {
      if (!(error instanceof TransportError) || error.details.refused === true || breaks >= BREAKS) throw error;
      await pause(FIRST_PAUSE_MS * 2 ** breaks++, signal);
    }
  }
}
