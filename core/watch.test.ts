import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { WatchDecoder, type WatchEvent } from "#core/watch.ts";

/** As the agent codes it. */
function encode(type: number, isDirectory: number, path: Uint8Array, from: Uint8Array): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt32LE(8 + path.length + from.length);
  head[4] = type;
  head[5] = isDirectory;
  head.writeUInt16LE(path.length, 6);
  head.writeUInt16LE(from.length, 8);
  return Buffer.concat([head, path, from]);
}

const NONE = new Uint8Array();
const path = fc.uint8Array({ maxLength: 40 });
const anEvent: fc.Arbitrary<{ readonly event: WatchEvent; readonly bytes: Buffer }> = fc.oneof(
  fc.constant({ event: { type: "overflow" as const }, bytes: encode(6, 0, NONE, NONE) }),
  fc
    .tuple(fc.constantFrom("created" as const, "modified" as const, "removed" as const), path, fc.boolean())
    .map(([type, name, directory]) => ({
      event: { type, path: name, directory },
      bytes: encode(["created", "modified", "removed"].indexOf(type) + 1, directory ? 1 : 0, name, NONE),
    })),
  fc.tuple(path, path).map(([name, from]) => ({
    event: { type: "moved" as const, path: name, from, directory: false },
    bytes: encode(4, 0, name, from),
  })),
);

describe("coding of watches", () => {
  test("what the agent says is decoded, wherever the chunks are cut", () => {
    fc.assert(
      fc.property(fc.array(anEvent, { maxLength: 8 }), fc.array(fc.nat({ max: 60 })), (all, cuts) => {
        const bytes = Buffer.concat(all.map((one) => one.bytes));
        const decoder = new WatchDecoder();
        const decoded: WatchEvent[] = [];
        let at = 0;
        for (const cut of cuts) {
          decoded.push(...decoder.push(bytes.subarray(at, at + cut)));
          at = Math.min(bytes.length, at + cut);
        }
        decoded.push(...decoder.push(bytes.subarray(at)));
        assert.deepEqual(
          decoded,
          all.map(({ event }) => event),
        );
      }),
    );
  });

  test("hostile bytes give events or a typed error, never a crash", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 4 }), (chunks) => {
        const decoder = new WatchDecoder();
        try {
          for (const chunk of chunks) decoder.push(chunk);
        } catch (error) {
          assert.ok(error instanceof SandboxError && error.kind === "Internal", String(error));
        }
      }),
    );
    for (const bad of [
      encode(7, 0, NONE, NONE),
      encode(1, 2, NONE, NONE),
      encode(0, 0, Buffer.from("x"), NONE),
      encode(1, 0, NONE, Buffer.from("x")),
    ]) {
      assert.throws(() => new WatchDecoder().push(bad), { kind: "Internal" });
    }
  });
});
