import { BufferPool } from "#core/bytes/buffer-pool.ts";
import type { OutputChunk, OutputRead } from "#core/node.ts";
import type { OutputLog } from "#edge/output/log.ts";

/** Largest chunk: with its head an item of the RPC. */
const CHUNK_BYTES = 124 * 1024;
/** Of all readers: one that waits holds none, so that thousands may be attached to quiet commands. */
const CHUNKS = new BufferPool(CHUNK_BYTES);

/** A log opened for a reader; disposing lets it go. */
export interface ReadableLog extends Disposable {
  readonly log: OutputLog;
  /** True when no more output can come. */
  over(): boolean;
}

/**
 * Chunks of a log from an offset on; it is opened when the first is asked for. With `follow` it waits for more until the stream
 * ends, or `over` says that nothing can come any more. A gap in the middle shows in the offset of the chunk behind it. The
 * bytes of a chunk are the reader's until it asks for the next.
 */
export async function* readLog(
  open: () => ReadableLog,
  read: OutputRead,
  signal: AbortSignal,
): AsyncGenerator<OutputChunk, void, undefined> {
  using source = open();
  const { log } = source;
  using hold = read.hold ? log.hold(read.offset) : undefined;
  let offset = read.offset;
  for (;;) {
    signal.throwIfAborted();
    // Both are read before the log is: what was written between would be missed the other way round.
    const over = !read.follow || log.ended || source.over();
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
    await changed(log, signal);
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
