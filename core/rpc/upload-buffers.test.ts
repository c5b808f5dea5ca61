import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Payload } from "#core/rpc/frames.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import { RpcPeer } from "#core/rpc/peer.ts";
import type { Serve } from "#core/rpc/serving.ts";

const SIZE = 40_000;
const never = new AbortController().signal;
const NOTHING: Payload = { head: undefined, bytes: new Uint8Array() };

function connect(serve: Serve): RpcPeer {
  const [near, far] = memoryPair();
  new RpcPeer(far, { serve });
  return new RpcPeer(near);
}

/** Every item from one array: what is sent must not depend on it once the next item is asked for. */
async function* filled(start: number, count: number): AsyncGenerator<Payload> {
  const bytes = new Uint8Array(SIZE);
  for (let index = 0; index < count; index += 1) yield { head: undefined, bytes: bytes.fill(start + index) };
}

function assertFilled(bytes: Uint8Array, value: number): void {
  assert.ok(Buffer.alloc(SIZE, value).equals(bytes), `an item of ${value} holds other bytes`);
}

describe("the buffers of uploads", () => {
  test("are used again, and an item's bytes are the handler's until it asks for the next", async () => {
    const memory = new Set<ArrayBufferLike>();
    const client = connect(async ({ upload, payload: { head } }) => {
      let value = Number(head);
      for await (const { bytes } of upload) {
        memory.add(bytes.buffer);
        for (let turn = 0; turn < Number(head) % 4; turn += 1) await new Promise(setImmediate);
        assertFilled(bytes, value % 256);
        value += 1;
      }
      return { ...NOTHING, head: value };
    });
    const starts = [0, 61, 122, 183];
    const answers = await Promise.all(
      starts.map((head) => client.call("x", { ...NOTHING, head }, { signal: never, upload: filled(head, 60) })),
    );
    assert.deepEqual(
      answers.map(({ head }) => head),
      starts.map((start) => start + 60),
    );
    assert.ok(memory.size < 120, `${memory.size} buffers for 240 items`);
    client.close();
  });

  test("are not used again while a handler that left early may still look at them", async () => {
    const held: Uint8Array[] = [];
    const client = connect(async ({ upload, method }) => {
      for await (const { bytes } of upload) {
        if (method === "all") continue;
        held.push(bytes);
        break;
      }
      return NOTHING;
    });
    for (let value = 1; value <= 3; value += 1) {
      await client.call("first", NOTHING, { signal: never, upload: filled(value, 1) });
      await client.call("all", NOTHING, { signal: never, upload: filled(100, 60) });
    }
    for (const [index, bytes] of held.entries()) assertFilled(bytes, index + 1);
    assert.equal(held.length, 3);
    client.close();
  });
});
