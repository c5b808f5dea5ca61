import { hash } from "node:crypto";
import type { ObjectContent } from "../object-store.ts";

/** Bytes as the content of an object, in pieces of `pieceBytes`. */
export function contentOf(bytes: Uint8Array | string, pieceBytes = 1000): ObjectContent {
  const buffer = Buffer.from(bytes);
  return {
    sizeBytes: buffer.length,
    sha256: hash("sha256", buffer),
    async *open() {
      for (let at = 0; at < buffer.length; at += pieceBytes) yield buffer.subarray(at, at + pieceBytes);
    },
  };
}

/** All of what is read, in one. */
export async function bytesOf(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(source));
}
