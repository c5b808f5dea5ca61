import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { InputSender } from "./input.ts";

const WINDOW = 1000;

/** An agent's side in a few lines: takes what fits its window, in order, and reads a bit when told. */
class ModelAgent {
  received = 0;
  written = 0;
  bytes: number[] = [];
  end: number | undefined | "open" = "open";
  readonly sender: InputSender;

  constructor() {
    this.sender = new InputSender(
      {
        data: (offset, bytes) => {
          assert.ok(offset <= this.received, "no gap");
          assert.equal(this.end, "open");
          const fresh = bytes.subarray(this.received - offset);
          assert.ok(this.received - this.written + fresh.length <= WINDOW, "within the window");
          this.bytes.push(...fresh);
          this.received += fresh.length;
        },
        end: (offset) => {
          this.end = offset;
        },
      },
      WINDOW,
    );
  }

  read(count: number): void {
    this.written = Math.min(this.received, this.written + count);
    this.sender.answered(0, this.written);
  }
}

describe("input of a task", () => {
  test("any sizes of writes and reads: in order, within the window, each write settled when taken", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(3000), { minLength: 1, maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 900 }), { minLength: 1, maxLength: 10 }),
        async (sizes, reads) => {
          const agent = new ModelAgent();
          const all: number[] = [];
          const settled: number[] = [];
          for (const size of sizes) {
            const bytes = Uint8Array.from({ length: size }, (_, index) => (all.length + index) % 251);
            const end = all.length + size;
            void agent.sender.write(all.length, bytes).then(() => settled.push(end));
            all.push(...bytes);
          }
          agent.sender.close();
          for (let step = 0; agent.written < all.length; step++) {
            agent.read(reads[step % reads.length] ?? 1);
            await Promise.resolve();
            await Promise.resolve();
            assert.ok(settled.every((end) => end <= agent.written));
          }
          agent.read(1);
          await new Promise(setImmediate);
          assert.equal(settled.length, sizes.length);
          assert.deepEqual(agent.bytes, all);
          assert.equal(agent.end, all.length);
        },
      ),
      { numRuns: 50 },
    );
  });

  test("closing without a write asks for the end wherever the agent is", () => {
    const agent = new ModelAgent();
    agent.sender.close();
    assert.equal(agent.end, undefined);
  });

  test("bytes are the caller's again at once, and a buffer is not reused before it is sent, whatever the agent says", async () => {
    const size = 20_000;
    const unsent: { readonly bytes: Uint8Array; readonly sent: (() => void) | undefined }[] = [];
    const sender = new InputSender({ data: (_, bytes, sent) => unsent.push({ bytes, sent }), end: () => {} }, size * 3);
    const bytes = new Uint8Array(size);
    const write = async (index: number) => {
      const taken = sender.write(index * size, bytes.fill(index));
      sender.answered(0, (index + 1) * size);
      await taken;
    };
    for (let index = 0; index < 40; index++) await write(index);
    bytes.fill(255);
    for (const [index, piece] of unsent.entries()) assert.ok(Buffer.alloc(size, index).equals(piece.bytes));
    const known = new Set(unsent.map((piece) => piece.bytes.buffer));
    assert.equal(known.size, 40);
    for (const { sent } of unsent) sent?.();
    await write(40);
    assert.ok(known.has(unsent[40]?.bytes.buffer ?? new ArrayBuffer()), "what was sent is used again");
  });

  test("a refusal rejects what waits, and says why", async () => {
    const agent = new ModelAgent();
    const waiting = agent.sender.write(0, new Uint8Array(5000));
    agent.sender.answered(1, 12);
    await assert.rejects(waiting, { kind: "FailedPrecondition", details: { offset: 12 } });
    const absent = agent.sender.write(0, new Uint8Array(1));
    agent.sender.answered(2, 0);
    await assert.rejects(absent, { kind: "FailedPrecondition", message: /no input/ });
  });
});
