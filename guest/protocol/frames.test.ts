import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { FRAME, type Frame, FrameDecoder, getOffset, newFrame, putOffset } from "./frames.ts";

/** A frame an agent may send, with its payload filled in. */
const agentFrame = fc
  .oneof(
    fc.record({ type: fc.constant(FRAME.out), size: fc.integer({ min: 9, max: 3000 }) }),
    fc.constantFrom(
      { type: FRAME.pong, size: 8 },
      { type: FRAME.started, size: 4 },
      { type: FRAME.outEof, size: 8 },
      { type: FRAME.exit, size: 28 },
      { type: FRAME.listEnd, size: 0 },
      { type: FRAME.inputAt, size: 8 },
      { type: FRAME.task, size: 64 },
    ),
  )
  .chain(({ type, size }) =>
    fc.record({
      type: fc.constant(type),
      flag: fc.nat(255),
      task: fc.nat(2 ** 32 - 1),
      payload: fc.uint8Array({ minLength: size, maxLength: size }),
    }),
  );

function encode(frame: { type: number; flag: number; task: number; payload: Uint8Array }): Buffer {
  const bytes = newFrame(frame.type, frame.flag, frame.task, frame.payload.length);
  bytes.set(frame.payload, 12);
  return bytes;
}

function decode(chunks: readonly Buffer[]): Frame[] {
  const frames: Frame[] = [];
  const keep = (frame: Frame) => frames.push({ ...frame, payload: Buffer.from(frame.payload) });
  const decoder = new FrameDecoder(keep);
  for (const chunk of chunks) decoder.push(chunk);
  return frames;
}

/** The bytes cut at the given places. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return ends.map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1], end));
}

function plain(frames: readonly Frame[]): unknown[] {
  return frames.map(({ type, flag, task, payload }) => ({ type, flag, task, payload: [...payload] }));
}

describe("frames", () => {
  test("any cutting of the bytes gives the same frames", () => {
    fc.assert(
      fc.property(
        fc.array(agentFrame, { maxLength: 8 }),
        fc.array(fc.nat(20_000), { maxLength: 30 }),
        (frames, places) => {
          const bytes = Buffer.concat(frames.map(encode));
          const expected = frames.map((frame) => ({ ...frame, payload: [...frame.payload] }));
          assert.deepEqual(plain(decode(cut(bytes, places))), expected);
        },
      ),
    );
  });

  test("one byte at a time gives the same frames", () => {
    fc.assert(
      fc.property(fc.array(agentFrame, { maxLength: 3 }), (frames) => {
        const bytes = Buffer.concat(frames.map(encode));
        assert.equal(decode(Array.from(bytes, (byte) => Buffer.from([byte]))).length, frames.length);
      }),
      { numRuns: 30 },
    );
  });

  test("hostile bytes are refused with Internal or wait for more, and never hold more than one frame", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 10 }), (chunks) => {
        try {
          decode(chunks.map((chunk) => Buffer.from(chunk)));
        } catch (error) {
          assert.ok(error instanceof Error && "kind" in error && error.kind === "Internal");
        }
      }),
    );
  });

  test("a frame that no agent sends is refused as soon as its header is there", () => {
    const huge = newFrame(FRAME.out, 0, 1, 20);
    huge.writeUInt32LE(0x7fffffff, 0);
    const reserved = newFrame(FRAME.pong, 0, 1, 8);
    reserved.writeUInt16LE(1, 6);
    const short = newFrame(FRAME.out, 0, 1, 20);
    short.writeUInt32LE(3, 0);
    for (const bytes of [huge, reserved, short, newFrame(FRAME.start, 0, 1, 8), newFrame(FRAME.exit, 0, 1, 27)]) {
      assert.throws(() => decode([bytes.subarray(0, 12)]), { kind: "Internal" });
    }
  });

  test("offsets up to 2^53 survive, larger ones are refused", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (offset) => {
        const bytes = Buffer.alloc(8);
        putOffset(bytes, 0, offset);
        assert.equal(getOffset(bytes, 0), offset);
      }),
    );
    assert.throws(() => getOffset(Buffer.alloc(8, 0xff), 0), { kind: "Internal" });
  });
});
