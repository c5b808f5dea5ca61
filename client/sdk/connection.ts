import type { Duplex } from "node:stream";
import { TransportError } from "./errors.ts";

/**
 * Bytes both ways over one connection. Each side is closed for itself: iterating ends when the other side has closed its own,
 * and throws when the connection broke, so that a part never looks like the whole. Can be iterated once.
 */
export interface Connection extends AsyncIterable<Uint8Array>, Disposable {
  /** Resolves when there is room for more. Rejects with `TransportError` when the connection is broken. */
  write(data: string | Uint8Array): Promise<void>;
  /** Closes this side after what was written; what comes from the other still comes. */
  end(): void;
  /** Breaks the connection, unless both sides are closed. */
  [Symbol.dispose](): void;
}

/** A stream of Node as a connection; `head` was read from it already. */
export function connectionOver(stream: Duplex, head: Uint8Array): Connection {
  if (head.byteLength > 0) stream.unshift(head);
  let failure: Error | undefined;
  stream.on("error", (error) => {
    failure = error;
  });
  return {
    write: (data) =>
      new Promise((resolve, reject) => {
        const settle = () => {
          stream.off("drain", settle);
          stream.off("close", settle);
          if (stream.destroyed) reject(broken(failure));
          else resolve();
        };
        if (stream.destroyed) return reject(broken(failure));
        if (stream.write(data)) return resolve();
        stream.on("drain", settle);
        stream.on("close", settle);
      }),
    end: () => {
      stream.end();
    },
    async *[Symbol.asyncIterator]() {
      try {
        for await (const chunk of stream.iterator({ destroyOnReturn: false })) yield chunk as Buffer;
      } catch (error) {
        throw broken(error);
      }
    },
    [Symbol.dispose]: () => {
      stream.destroy();
    },
  };
}

function broken(cause: unknown): TransportError {
  return new TransportError("the connection broke", { cause });
}
