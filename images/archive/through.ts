import { type Duplex, Readable } from "node:stream";

/** What comes out of a transform; what is wrong with the source comes out as it is, and leaving ends both. */
export async function* through(source: AsyncIterable<Uint8Array>, transform: Duplex): AsyncGenerator<Uint8Array> {
  const input = Readable.from(source, { objectMode: true });
  input.on("error", (error) => transform.destroy(error));
  try {
    yield* input.pipe(transform);
  } finally {
    input.destroy();
    transform.destroy();
  }
}
