import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { FileDigest } from "#core/files.ts";
import type { CallScope } from "./scope.ts";
import { write } from "./stream.ts";

/** The trailers of a file's bytes, for the client to compare with what it got. */
const SIZE = "X-Dsec-Size";
const SHA256 = "X-Dsec-Sha256";

/**
 * Sends a file's bytes as they come, and what they were as trailers. Rejects when the source fails before its first part, and
 * nothing is sent then; a later failure breaks the connection, because a clean end would look like the whole.
 */
export async function sendFile(
  source: AsyncIterable<Uint8Array | FileDigest>,
  response: ServerResponse,
  scope: CallScope,
  type = "application/octet-stream",
): Promise<void> {
  const parts = source[Symbol.asyncIterator]();
  let next = await parts.next();
  response.writeHead(200, { "content-type": type, trailer: `${SIZE}, ${SHA256}` });
  try {
    for (; next.done !== true; next = await parts.next()) {
      if (next.value instanceof Uint8Array) await write(response, next.value, scope);
      else response.addTrailers({ [SIZE]: String(next.value.size), [SHA256]: next.value.sha256 });
    }
    response.end();
  } catch {
    response.destroy();
  } finally {
    await parts.return?.().catch(() => undefined);
  }
}

/** Bytes, then what they were. */
export async function* withDigest(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array | FileDigest> {
  const digest = createHash("sha256");
  let size = 0;
  for await (const bytes of source) {
    digest.update(bytes);
    size += bytes.length;
    yield bytes;
  }
  yield { size, sha256: digest.digest("hex") };
}
