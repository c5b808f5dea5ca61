import type { ErrorBody, WatchView } from "#api/index.ts";
import { type Caller, type CallOptions, pause } from "./caller.ts";
import { errorFromReply, TransportError } from "./errors.ts";
import { lines } from "./lines.ts";

/** What a watch takes. */
export interface WatchOptions extends CallOptions {
  /** Directories below as well, those to come included. */
  readonly recursive?: boolean;
  /** With whose rights; the sandbox's user unless said otherwise. */
  readonly user?: string;
}

/** Breaks in a row, without an event between them, before a reader gives up. */
const BREAKS = 6;
const FIRST_PAUSE_MS = 100;

/** See `Files.watch`. */
export async function* watchFiles(
  caller: Caller,
  call: string,
  path: string | Uint8Array,
  { recursive, user, signal, timeoutMs }: WatchOptions,
): AsyncGenerator<WatchView> {
  let hasBegun = false;
  for (let breaks = 0; ; ) {
    try {
      const reply = await caller.open({
        method: "GET",
        path: call,
        query: { path, recursive, user },
        signal,
        timeoutMs,
      });
      try {
        for await (const line of lines(reply.body)) {
          const event = JSON.parse(line) as WatchView | ErrorBody;
          if ("error" in event) throw errorFromReply(500, line);
          breaks = 0;
          yield hasBegun && event.type === "ready" ? { type: "overflow" } : event;
          hasBegun = true;
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
