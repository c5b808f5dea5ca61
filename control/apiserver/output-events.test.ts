import assert from "node:assert/strict";
import { isUtf8 } from "node:buffer";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { OutputEvent } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { OutputChunk } from "#core/node.ts";
import { outputEvents } from "./output-events.ts";

const ASKED = { offset: 0, follow: true };

async function eventsOf(source: AsyncIterable<OutputChunk>, asked = ASKED): Promise<OutputEvent[]> {
  return await Array.fromAsync(outputEvents(source, asked));
}

/** Pieces of a stream, all in one memory, as the node gives them. */
async function* pieces(bytes: Buffer, cuts: readonly number[], offset = 0): AsyncGenerator<OutputChunk> {
  const memory = Buffer.alloc(bytes.length);
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  let from = 0;
  for (const end of ends) {
    if (end === from) continue;
    bytes.copy(memory, 0, from, end);
    yield { offset: offset + from, bytes: memory.subarray(0, end - from) };
    from = end;
  }
}

function bytesIn(event: OutputEvent): Buffer {
  if (!("data" in event)) return Buffer.alloc(0);
  return typeof event.data === "string" ? Buffer.from(event.data) : Buffer.from(event.data.base64, "base64");
}

const wild = fc.oneof(
  fc.string({ unit: "grapheme" }).map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
);

describe("output as events", () => {
  test("any bytes in any pieces come back as they are, in order, with their offsets", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(wild), fc.array(fc.nat(200)), async (parts, cuts) => {
        const bytes = Buffer.concat(parts);
        const events = await eventsOf(pieces(bytes, cuts));
        assert.deepEqual(Buffer.concat(events.map(bytesIn)), bytes);
        let next = 0;
        for (const event of events.slice(0, -1)) {
          assert.ok("data" in event && event.offset === next);
          next += bytesIn(event).length;
        }
        assert.deepEqual(events.at(-1), { end: "ended", offset: bytes.length });
      }),
    );
  });

  test("crash or replacement characters on invalid UTF-8: text in any pieces stays text, no code point is divided", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "grapheme", minLength: 1 }), fc.array(fc.nat(60)), async (text, cuts) => {
        const events = await eventsOf(pieces(Buffer.from(text), cuts));
        const data = events.map((event) => ("data" in event ? event.data : ""));
        assert.equal(data.join(""), text);
      }),
    );
  });

  test("only what may still become a code point is held back", async () => {
    for (const start of [
      [0xe2],
      [0xe2, 0x82],
      [0xf0, 0x9f, 0x98],
      [0xc0],
      [0xed, 0xa0],
      [0xf4, 0x90],
      [0xff],
      [0x80],
    ]) {
      const bytes = Buffer.from([0x61, ...start]);
      const cut = bytes.length;
      const [first] = await eventsOf(pieces(Buffer.concat([bytes, Buffer.from("z")]), [cut]));
      const held = cut - bytesIn(first ?? { end: "ended", offset: 0 }).length;
      const hopeful = [0x80, 0x90, 0xa0, 0xbf].some((next) =>
        [[], [0x80], [0x80, 0x80]].some((more) => isUtf8(Buffer.from([...start, next, ...more]))),
      );
      assert.equal(held, hopeful ? start.length : 0, String(start));
    }
  });

  test("a gap is an event of its own, behind what a cut left over", async () => {
    const gapped = async function* (): AsyncGenerator<OutputChunk> {
      yield { offset: 0, bytes: Buffer.from([0x61, 0xe2]) };
      yield { offset: 10, bytes: Buffer.from("b") };
    };
    assert.deepEqual(await eventsOf(gapped(), { offset: 0, follow: false }), [
      { offset: 0, data: "a" },
      { offset: 1, data: { base64: "4g==" } },
      { gap: { from: 2, to: 10 } },
      { offset: 10, data: "b" },
      { end: "caught-up", offset: 11 },
    ]);
  });

  test("a broken stream turned into a clean end: a failure is the last event, and no end comes", async () => {
    const failing = async function* (): AsyncGenerator<OutputChunk> {
      yield { offset: 0, bytes: Buffer.from("a") };
      throw new SandboxError("SandboxLost", "it died");
    };
    const events = await eventsOf(failing());
    assert.equal(events.length, 2);
    assert.ok(events[1] !== undefined && "error" in events[1] && events[1].error.kind === "SandboxLost");
  });
});
