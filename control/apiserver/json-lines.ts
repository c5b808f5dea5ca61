import { type EventForm, LINES } from "./event-forms.ts";
import { failureOf } from "./failure.ts";
import { BEAT_MS, withinMs } from "./stream.ts";

/**
 * Values one after the other, as lines of JSON or in another form, with a beat where none has come for a while: what stands
 * between must not take a quiet stream for a dead one. What fails before anything was sent rejects; what fails later is the
 * last value, an error as every reply has it: a stream that has begun has no other place to say it.
 */
export function jsonLines<T>(
  source: AsyncIterable<T>,
  view: (value: T) => object,
  { form = LINES, beatMs = BEAT_MS }: { readonly form?: EventForm | undefined; readonly beatMs?: number } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  return longLines(source, (value) => [Buffer.from(form.encode(view(value), undefined))], { form, beatMs });
}

/** The same for values whose lines may be long: each is made piece by piece, as the reader takes them. */
export async function* longLines<T>(
  source: AsyncIterable<T>,
  line: (value: T) => Iterable<Uint8Array>,
  { form = LINES, beatMs = BEAT_MS }: { readonly form?: EventForm | undefined; readonly beatMs?: number } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const values = source[Symbol.asyncIterator]();
  let hasBegun = false;
  try {
    for (let next = values.next(); ; ) {
      const value = await withinMs(next, beatMs);
      if (value?.done === true) return;
      hasBegun = true;
      if (value === undefined) yield Buffer.from(form.beat);
      else {
        yield* line(value.value);
        next = values.next();
      }
    }
  } catch (error) {
    if (!hasBegun) throw error;
    yield Buffer.from(form.encode(failureOf(error).body, undefined));
  } finally {
    // Not awaited: a source that waits for its next value ends with the call's signal.
    void values.return?.().catch(() => undefined);
  }
}
