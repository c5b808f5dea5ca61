import type { OutputEnd, OutputStream } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { TransportError } from "./errors.ts";

/** How to read an output stream. */
export interface OutputOptions extends CallOptions {
  /** First byte wanted; 0 is the first the command wrote. */
  readonly offset?: number;
  /** Go on until the stream ends; otherwise stop at what is there now. True unless said otherwise. */
  readonly follow?: boolean;
  /** Hold the command back rather than drop bytes that this reader has not had. */
  readonly hold?: boolean;
}

/** Bytes with their place in the stream. A chunk that starts after the end of the one before shows a gap. */
export interface OutputChunk {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/**
 * Reads an output, and goes on from the same byte when a connection breaks. A reply says in its `X-Dsec-End` trailer why it
 * ended: at the end of the stream, at what there was, or before bytes that were dropped. One without it has broken off.
 */
export async function* readOutput(
  caller: Caller,
  path: string,
  stream: OutputStream,
  options: OutputOptions = {},
): AsyncGenerator<OutputChunk> {
  const { offset: first = 0, follow = true, hold = false, signal, timeoutMs } = options;
  const patience = caller.patience({ signal });
  let offset = first;
  for (;;) {
    try {
      const reply = await caller.open({
        method: "GET",
        path: `${path}/output/${stream}`,
        query: { offset, follow, hold },
        signal,
        timeoutMs,
      });
      patience.answered();
      try {
        offset = Number(reply.header("x-dsec-offset") ?? offset);
        for await (const bytes of reply.body) {
          patience.progressed();
          yield { offset, bytes };
          offset += bytes.byteLength;
        }
        const end = reply.trailer("x-dsec-end") as OutputEnd | undefined;
        if (end === "ended" || (end === "caught-up" && !follow)) return;
        if (end === undefined) throw new TransportError("the reply does not say why it ended");
      } finally {
        reply.discard();
      }
    } catch (error) {
      await patience.broke(error);
    }
  }
}
