import { randomUUID } from "node:crypto";
import type { CommandReply, RunLine, StartCommand } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { hasEnded } from "./ended.ts";
import { Result } from "./result.ts";

/** Output of a short command that comes with the answer to its start. */
const INLINE_BYTES = 256 * 1024;

/** Text, or bytes that need not be text, as the API takes them. */
export function wireBytes(argument: string | Uint8Array): string | { base64: string } {
  return typeof argument === "string" ? argument : { base64: Buffer.from(argument).toString("base64") };
}

/** The result, when the command ended in time and every byte it wrote came with the answer. */
export function inlineResult(reply: CommandReply): Result | undefined {
  const { output } = reply;
  if (!hasEnded(reply) || output === undefined) return undefined;
  const stdout = Buffer.from(output.stdout, "base64");
  const stderr = Buffer.from(output.stderr, "base64");
  if (stdout.byteLength < reply.stdout.seen || stderr.byteLength < reply.stderr.seen) return undefined;
  return new Result(reply.status, { bytes: stdout, whole: true }, { bytes: stderr, whole: true });
}

/**
 * Starts a command where commands are started; waits up to `waitMs` for its end, and brings its first output with the answer. Whoever
 * waits stays with a server that is away: by its key the command starts once.
 */
export async function postCommand(
  caller: Caller,
  path: string,
  body: StartCommand | RunLine,
  options: CallOptions & { readonly idempotencyKey?: string; readonly waitMs: number },
): Promise<CommandReply> {
  const { idempotencyKey = randomUUID(), waitMs, signal, timeoutMs } = options;
  const patience = caller.patience(options);
  for (;;) {
    try {
      return await caller.json<CommandReply>({
        method: "POST",
        path,
        query: waitMs === 0 ? undefined : { waitMs, inlineBytes: INLINE_BYTES },
        headers: { "idempotency-key": idempotencyKey },
        json: body,
        signal,
        timeoutMs,
        repeatable: true,
      });
    } catch (error) {
      if (waitMs === 0) throw error;
      await patience.broke(error);
    }
  }
}
