import { isUtf8 } from "node:buffer";
import type { OutputEvent } from "#api/index.ts";
import type { OutputChunk } from "#core/node.ts";
import { textOrBytes } from "./bytes.ts";
import { failureOf } from "./failure.ts";

/** A code point in UTF-8 has at most four bytes: so many may be there of one that is not complete. */
const MOST_OF_ONE = 3;

/**
 * An output as values that JSON can hold: text where the bytes are UTF-8, gaps by name, and why it ends as the last. A code
 * point is never divided: the bytes of one that a chunk cuts come with the next chunk, or as what they are when there is none.
 */
export async function* outputEvents(
  source: AsyncIterable<OutputChunk>,
  asked: { readonly offset: number; readonly follow: boolean },
): AsyncGenerator<OutputEvent, void, undefined> {
  const text = new TextCutter(asked.offset);
  try {
    for await (const chunk of source) {
      if (chunk.offset > text.end) {
        yield* text.rest();
        yield { gap: { from: text.end, to: chunk.offset } };
      }
      yield* text.add(chunk);
    }
    yield* text.rest();
    yield { end: asked.follow ? "ended" : "caught-up", offset: text.end };
  } catch (error) {
    yield failureOf(error).body;
  }
}

/** Holds back the start of a code point whose rest has not come. */
class TextCutter {
  /** One past the last byte that was added. */
  end: number;
  #held: Uint8Array = new Uint8Array();

  constructor(offset: number) {
    this.end = offset;
  }

  *add({ offset, bytes }: OutputChunk): Generator<OutputEvent, void, undefined> {
    const from = offset - this.#held.byteLength;
    const all = this.#held.byteLength === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    const cut = all.byteLength - unfinishedBytes(all);
    this.end = offset + bytes.byteLength;
    // The chunk's memory is used again for the next one.
    this.#held = new Uint8Array(all.subarray(cut));
    if (cut > 0) yield { offset: from, data: textOrBytes(all.subarray(0, cut)) };
  }

  *rest(): Generator<OutputEvent, void, undefined> {
    const held = this.#held;
    this.#held = new Uint8Array();
    if (held.byteLength > 0) yield { offset: this.end - held.byteLength, data: textOrBytes(held) };
  }
}

/** Bytes at the end that begin a code point and do not complete it. */
function unfinishedBytes(bytes: Uint8Array): number {
  for (let length = 1; length <= Math.min(MOST_OF_ONE, bytes.byteLength); length++) {
    const lead = bytes[bytes.byteLength - length] ?? 0;
    if (lead >= 0xc0) return length < lengthOf(lead) && mayGoOn(bytes.subarray(-length), lead) ? length : 0;
    if (lead < 0x80) return 0;
  }
  return 0;
}

function lengthOf(lead: number): number {
  return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

/** Whether there are bytes that make a code point of these: what can never become one is not worth waiting for. */
function mayGoOn(start: Uint8Array, lead: number): boolean {
  const missing = lengthOf(lead) - start.byteLength;
  // The ranges of a second byte begin at 80, 90 or A0 and end at 8F, 9F or BF: one of the two tells.
  return start.byteLength === 1
    ? [0x80, 0xbf].some((second) => isUtf8(Buffer.from([lead, second, ...new Array<number>(missing - 1).fill(0x80)])))
    : isUtf8(Buffer.concat([start, Buffer.alloc(missing, 0x80)]));
}
