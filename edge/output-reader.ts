import { BufferPool } from "#core/buffer-pool.ts";
import type { OutputChunk, OutputRead } from "#core/node.ts";
import type { OutputLog } from "#edge/output-log.ts";

/** Largest chunk: with its head an item of the RPC. */
const CHUNK_BYTES = 124 * 1024;
/** Of all readers: one that waits holds none, so that thousands may be attached to quiet commands. */
const CHUNKS = new BufferPool(CHUNK_BYTES);

/**
 * Chunks of a log from an offset on. With `follow` it waits for more until the stream ends, or `over` says
 * that nothing can come any more. A gap in the middle shows in the offset of the chunk behind it. The bytes of a chunk are the
 * reader's until it asks for the next.
 */
export async function* readLog(
  log: OutputLog,
  read: OutputRead,
  options: { readonly signal: AbortSignal; readonly over: () => boolean },
): AsyncGenerator<OutputChunk, void, undefined> {
  using hold = read.hold ? log.hold(read.offset) : undefined;
  let offset = read.offset;
  for (;;) {
    options.signal.throwIfAborted();
    // Both are read before the log is: what was written between would be missed the other way round.
    const over = !read.follow || log.ended || options.over();
    const { buffer, done } = CHUNKS.take(CHUNK_BYTES);
    try {
      const chunk = log.read(offset, buffer);
      if (chunk !== undefined) {
        yield chunk;
        offset = chunk.offset + chunk.bytes.length;
        hold?.move(offset);
        continue;
      }
    } finally {
      done?.();
    }
    if (over) return;
    await changed(log, options.signal);
  }
}

function changed(log: OutputLog, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = () => {
      watch[Symbol.dispose]();
      signal.removeEventListener("abort", onAbort);
    };
    const onAbort = () => {
      done();
      reject(signal.reason);
    };
    const watch = log.watch(() => {
      done();
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
