import { failureOf } from "./failure.ts";

/** The media type of JSON values, one a line. */
export const JSON_LINES = "application/x-ndjson";

/**
 * Values as lines of JSON. What fails before the first value rejects; what fails later is the last line, an error as every
 * reply has it: a stream that has begun has no other place to say it.
 */
export async function* jsonLines<T>(
  source: AsyncIterable<T>,
  view: (value: T) => unknown,
): AsyncGenerator<Uint8Array, void, undefined> {
  let hasBegun = false;
  try {
    for await (const value of source) {
      hasBegun = true;
      yield line(view(value));
    }
  } catch (error) {
    if (!hasBegun) throw error;
    yield line(failureOf(error).body);
  }
}

function line(value: unknown): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`);
}
