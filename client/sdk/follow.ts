import type { ErrorBody } from "#api/index.ts";
import type { Call, Caller } from "./caller.ts";
import { errorFromReply } from "./errors.ts";
import { lines } from "./lines.ts";

/** Values of a stream of JSON lines until it ends. One that breaks is asked for again; what it would have told meanwhile is lost. */
export async function* followLines<View extends object>(
  caller: Caller,
  call: Omit<Call, "method">,
): AsyncGenerator<View> {
  const patience = caller.patience(call);
  for (;;) {
    try {
      const reply = await caller.open({ ...call, method: "GET" });
      patience.answered();
      try {
        for await (const line of lines(reply.body)) {
          const value = JSON.parse(line) as View | ErrorBody;
          if ("error" in value) throw errorFromReply(500, line);
          patience.progressed();
          yield value;
        }
        return;
      } finally {
        reply.discard();
      }
    } catch (error) {
      await patience.broke(error);
    }
  }
}
