import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { blobDigest } from "../digest.ts";
import type { BlobSource } from "./blob-source.ts";
import { type Fetchable, Fetcher, type FetcherOptions } from "./fetcher.ts";

interface Request {
  readonly first: number;
  readonly end: number;
  answer(): void;
  fail(error: SandboxError): void;
}

/** A source that answers when the test says so. */
class HeldSource implements BlobSource {
  readonly requests: Request[] = [];
  #arrived = Promise.withResolvers<void>();

  read(_: unknown, first: number, into: Buffer, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => reject(signal.reason));
    this.requests.push({ first, end: first + into.length, answer: resolve, fail: reject });
    this.#arrived.resolve();
    return promise;
  }

  async take(): Promise<Request> {
    for (;;) {
      const request = this.requests.shift();
      if (request !== undefined) return request;
      this.#arrived = Promise.withResolvers<void>();
      await this.#arrived.promise;
    }
  }
}

class MemoryBlob implements Fetchable {
  readonly digest = blobDigest("ab".repeat(32));
  readonly descriptor = { version: 1, sizeBytes: 100, pieceBytes: 1, pieces: [], chunksSha256: "" } as const;
  readonly written = new Map<number, number>();

  has(piece: number): boolean {
    return this.written.has(piece);
  }

  async write(first: number, bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; at++) this.written.set(first + at, (this.written.get(first + at) ?? 0) + 1);
  }
}

function setUp(options: Partial<FetcherOptions> = {}) {
  const source = new HeldSource();
  const outcomes: (string | undefined)[] = [];
  const bounds = { requests: 4, piecesPerRequest: 4, deadlineMs: 60_000 };
  const onOutcome = (error: SandboxError | undefined) => void outcomes.push(error?.kind);
  return {
    source,
    outcomes,
    blob: new MemoryBlob(),
    fetcher: new Fetcher({ source, ...bounds, onOutcome, ...options }),
  };
}

test("two readers of one piece cost one fetch", async () => {
  const { source, blob, fetcher } = setUp();
  const both = Promise.all([fetcher.demand(blob, 3, 5), fetcher.demand(blob, 4, 5)]);
  (await source.take()).answer();
  await both;
  assert.deepEqual(
    [source.requests.length, [...blob.written]],
    [
      0,
      [
        [3, 1],
        [4, 1],
      ],
    ],
  );
});

test("readers that wait come before what is read ahead, and that before what an earlier run has read", async () => {
  const { source, blob, fetcher } = setUp({ requests: 3 });
  fetcher.hint(blob, 0, 4, "ahead");
  fetcher.hint(blob, 80, 84, "prefetch");
  fetcher.hint(blob, 20, 22, "ahead");
  const demand = Promise.all([
    fetcher.demand(blob, 40, 41),
    fetcher.demand(blob, 50, 51),
    fetcher.demand(blob, 81, 82),
  ]);
  const order: number[] = [];
  for (let count = 0; count < 6; count++) {
    const request = await source.take();
    order.push(request.first);
    request.answer();
  }
  await demand;
  // The first had begun; two are kept for readers; 81 was taken out of 80 to 84.
  assert.deepEqual(order, [0, 40, 50, 81, 20, 80]);
});

test("a store that fails is tried again as long as a reader waits", async () => {
  const { source, blob, fetcher, outcomes } = setUp();
  const reader = fetcher.demand(blob, 0, 1);
  (await source.take()).fail(new SandboxError("Unavailable", "down"));
  (await source.take()).answer();
  await reader;
  assert.deepEqual(outcomes, ["Unavailable", undefined]);
});

test("damage is not tried again, and a later reader tries", async () => {
  const { source, blob, fetcher } = setUp();
  const reader = fetcher.demand(blob, 0, 1);
  (await source.take()).fail(new SandboxError("Internal", "damaged"));
  await assert.rejects(reader, { kind: "Internal" });
  const later = fetcher.demand(blob, 0, 1);
  (await source.take()).answer();
  await later;
});

test("a reader whose deadline passes gets an error, and the source is not asked for what nobody waits for", async () => {
  const asked: number[] = [];
  const source: BlobSource = {
    read(_, first, _into, signal) {
      asked.push(first);
      if (first === 20) return Promise.resolve();
      return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  };
  const { blob, fetcher } = setUp({ source, requests: 1, deadlineMs: 20 });
  const late = { kind: "DeadlineExceeded" };
  await Promise.all([0, 9].map((piece) => assert.rejects(fetcher.demand(blob, piece, piece + 1), late)));
  while (!blob.has(20)) await fetcher.demand(blob, 20, 21).catch(() => undefined);
  assert.deepEqual([...new Set(asked)], [0, 20]);
});

test("whatever is wanted, in whatever order, comes once and completely, within the bounds", async () => {
  const range = fc.record({
    first: fc.nat(90),
    length: fc.integer({ min: 1, max: 9 }),
    priority: fc.constantFrom("demand", "ahead", "prefetch" as const),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(range, { maxLength: 30 }), async (ranges) => {
      let running = 0;
      const blob = new MemoryBlob();
      const source: BlobSource = {
        async read(_, first, into) {
          assert.ok(++running <= 4 && into.length <= 4);
          for (let at = 0; at < into.length; at++) into[at] = first + at;
          await new Promise(setImmediate);
          // A buffer that two requests had at a time would have changed.
          assert.ok(into.every((byte, at) => byte === first + at));
          running -= 1;
        },
      };
      const { fetcher } = setUp({ source });
      const demands = ranges.map(({ first, length, priority }) => {
        if (priority === "demand") return fetcher.demand(blob, first, first + length);
        fetcher.hint(blob, first, first + length, priority === "ahead" ? "ahead" : "prefetch");
        return Promise.resolve();
      });
      await Promise.all(demands);
      for (const { first, length } of ranges) await fetcher.demand(blob, first, first + length);
      assert.ok([...blob.written.values()].every((count) => count === 1));
    }),
    { numRuns: 50 },
  );
});
