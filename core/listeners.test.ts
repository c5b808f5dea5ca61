import assert from "node:assert/strict";
import { isIPv6 } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { decodeListeners } from "#core/listeners.ts";

function record(port: number, address: readonly number[]): number[] {
  return [port & 0xff, port >> 8, address.length, 0, ...address, ...Array(16 - address.length).fill(0)];
}

test("records become ports and addresses as people write them", () => {
  const loop6 = [...Array(15).fill(0), 1];
  const bytes = [record(8080, [127, 0, 0, 1]), record(1, loop6), record(65_535, Array(16).fill(0))].flat();
  assert.deepEqual(decodeListeners(Uint8Array.from(bytes)), [
    { port: 8080, address: "127.0.0.1" },
    { port: 1, address: "::1" },
    { port: 65_535, address: "::" },
  ]);
  assert.deepEqual(decodeListeners(new Uint8Array()), []);
});

test("every address of IPv6 is written so that it can be read back", () => {
  const sparse = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 255 })), { minLength: 16, maxLength: 16 });
  fc.assert(
    fc.property(sparse, (address) => {
      const [listener] = decodeListeners(Uint8Array.from(record(1, address)));
      const text = listener?.address ?? "";
      assert.ok(isIPv6(text), text);
      // The URL parser is another implementation of the same form, but for its names of mapped addresses.
      assert.equal(new URL(`http://[${text}]/`).hostname, `[${text}]`);
    }),
  );
});

test("what no agent writes is refused", () => {
  for (const bytes of [[1], record(0, [1, 2, 3, 4]), record(1, [1, 2, 3]), [...record(1, [1, 2, 3, 4]), 0]]) {
    assert.throws(() => decodeListeners(Uint8Array.from(bytes)), { kind: "Internal" });
  }
});
