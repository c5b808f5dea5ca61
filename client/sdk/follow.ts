import type { ErrorBody } from "#api/index.ts";
import { type Call, type Caller, pause } from "./caller.ts";
import { errorFromReply, TransportError } from "./errors.ts";
import { lines } from "./lines.ts";

/** Breaks in a row, without a value between them, before a reader gives up. */
const BREAKS = 6;
const FIRST_PAUSE_MS = 100;

/** Values of a stream of JSON lines until it ends. One that breaks is asked for again; what it would have told meanwhile is lost. */
export async function* followLines<View extends object>(
  caller: Caller,
  call: Omit<Call, "method">,
): AsyncGenerator<View> {
  let hasAnswered = false;
  for (let breaks = 0; ; ) {
    try {
      const reply = await caller.open({ ...call, method: "GET" });
      hasAnswered = true;
      try {
        for await (const line of lines(reply.body)) {
          const value = JSON.parse(line) as View | ErrorBody;
          if ("error" in value) throw errorFromReply(500, line);
          breaks = 0;
          yield value;
        }
        return;
      } finally {
        reply.discard();
      }
    } catch (error) {
      const transient = error instanceof TransportError && (hasAnswered || error.details.refused !== true);
      if (!transient || breaks >= BREAKS) throw error;
      await pause(FIRST_PAUSE_MS * 2 ** breaks++, call.signal);
    }
  }
}
