import { failureOf } from "./failure.ts";

/** The media type of JSON values, one a line. */
export const JSON_LINES = "application/x-ndjson";

/** How one value stands in a stream. */
type Encode = (value: object) => string;

const LINE: Encode = (value) => `${JSON.stringify(value)}\n`;

/**
 * Values as lines of JSON. What fails before the first value rejects; what fails later is the last line, an error as every
 * reply has it: a stream that has begun has no other place to say it. `encode` gives values another form than lines.
 */
export async function* jsonLines<T>(
  source: AsyncIterable<T>,
  view: (value: T) => object,
  encode: Encode = LINE,
): AsyncGenerator<Uint8Array, void, undefined> {
  let hasBegun = false;
  try {
    for await (const value of source) {
      hasBegun = true;
      yield Buffer.from(encode(view(value)));
    }
  } catch (error) {
    if (!hasBegun) throw error;
    yield Buffer.from(encode(failureOf(error).body));
  }
}
