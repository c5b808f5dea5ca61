import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DetachKeys } from "./detach-keys.ts";

test("the two keys detach, however they come, and nothing typed before is lost", () => {
  const key = fc.constantFrom(0x10, 0x11, 0x41, 0x03);
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 4 }).chain(() => fc.array(key, { maxLength: 4 }))), (pieces) => {
      const typed = pieces.flat();
      const at = typed.findIndex((byte, index) => byte === 0x11 && typed[index - 1] === 0x10);
      const keys = new DetachKeys();
      const sent: number[] = [];
      let detached = false;
      for (const piece of pieces) {
        if (detached) break;
        const { send, detach } = keys.take(Uint8Array.from(piece));
        sent.push(...send);
        detached = detach;
      }
      assert.equal(detached, at >= 0);
      // A key that may be the first of the two waits.
      const expected = detached ? typed.slice(0, at - 1) : typed.at(-1) === 0x10 ? typed.slice(0, -1) : typed;
      assert.deepEqual(sent, expected);
    }),
  );
});
