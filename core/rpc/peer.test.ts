import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { Deadline, deadlineOf } from "#core/rpc/deadline.ts";
import { decodeFrame, encodeCall, encodeCredit, encodeItem, type Payload } from "#core/rpc/frames.ts";
import { STREAM_WINDOW_BYTES } from "#core/rpc/inbox.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import { RpcPeer } from "#core/rpc/peer.ts";
import type { IncomingCall, OnFault, Serve } from "#core/rpc/serving.ts";

const NONE = new Uint8Array();
const never = new AbortController().signal;

function pair(
  serve: Serve,
  options: { heartbeatMs?: number; clock?: ManualClock; fault?: OnFault } = {},
): [RpcPeer, RpcPeer] {
  const [near, far] = memoryPair();
  return [new RpcPeer(near, options), new RpcPeer(far, { ...options, serve })];
}

function json(head: unknown, bytes: Uint8Array = NONE): Payload {
  return { head, bytes };
}

async function* items(count: number, size = 0): AsyncGenerator<Payload> {
  for (let index = 0; index < count; index += 1) yield json(index, new Uint8Array(size));
}

async function collect(source: AsyncIterable<Payload>): Promise<unknown[]> {
  const heads: unknown[] = [];
  for await (const item of source) heads.push(item.head);
  return heads;
}

/** A handler for every shape of call: echo, count down a stream, sum an upload, fail, wait for the signal. */
function serveAll(call: IncomingCall): Promise<Payload> | AsyncIterable<Payload> {
  switch (call.method) {
    case "echo":
      return Promise.resolve(call.payload);
    case "count":
      return items(Number(call.payload.head), call.payload.bytes.length);
    case "sum":
      return collect(call.upload).then((heads) => json(heads.reduce<number>((sum, head) => sum + Number(head), 0)));
    case "double":
      return (async function* () {
        for await (const item of call.upload) yield json(Number(item.head) * 2);
      })();
    case "hang":
      return new Promise((_resolve, reject) => {
        call.signal.addEventListener("abort", () => reject(call.signal.reason));
      });
    default:
      return Promise.reject(
        new SandboxError("NotFound", "no such method", { hint: "ask for another", details: { method: call.method } }),
      );
  }
}

describe("a framed connection", () => {
  test("carries a call's head and bytes there and back", async () => {
    const [client] = pair(serveAll);
    const bytes = new Uint8Array([0, 255, 1]);
    const answer = await client.call("echo", json({ a: ["ü", null] }, bytes), { signal: never });
    assert.deepEqual(answer.head, { a: ["ü", null] });
    assert.deepEqual(new Uint8Array(answer.bytes), bytes);
    client.close();
  });

  test("tells its own side of every error that crosses as Internal, with the cause, and of no other", async () => {
    const untyped = new Error("a bug", { cause: new Error("deep below") });
    const typed = new SandboxError("Internal", "the journal is damaged", { cause: untyped });
    const told: unknown[] = [];
    const [client] = pair(
      ({ method }) => {
        if (method === "typed") return Promise.reject(typed);
        if (method === "refused") return Promise.reject(new SandboxError("NotFound", "none", { cause: untyped }));
        if (method === "sync") throw untyped;
        return (async function* () {
          yield json(1);
          throw untyped;
        })();
      },
      { fault: (method, error) => told.push([method, error]) },
    );
    for (const method of ["typed", "sync"])
      await assert.rejects(client.call(method, json(1), { signal: never }), { kind: "Internal" });
    await assert.rejects(client.call("refused", json(1), { signal: never }), { kind: "NotFound" });
    await assert.rejects(collect(client.stream("stream", json(1), { signal: never })), { kind: "Internal" });
    assert.deepEqual(told, [
      ["typed", typed],
      ["sync", untyped],
      ["stream", untyped],
    ]);
    client.close();
  });

  test("carries typed errors with hint and details", async () => {
    const [client] = pair(serveAll);
    await assert.rejects(client.call("what", json(1), { signal: never }), {
      kind: "NotFound",
      hint: "ask for another",
      details: { method: "what" },
    });
    client.close();
  });

  test("streams downwards, upwards and both ways at once", async () => {
    const [client] = pair(serveAll);
    assert.equal((await collect(client.stream("count", json(5000), { signal: never }))).length, 5000);
    assert.equal((await client.call("sum", json(0), { signal: never, upload: items(1000) })).head, 499_500);
    const doubled = await collect(client.stream("double", json(0), { signal: never, upload: items(100) }));
    assert.deepEqual(doubled.slice(0, 3), [0, 2, 4]);
    assert.equal(doubled.length, 100);
    client.close();
  });

  test("an item's bytes are the consumer's until it asks for the next, though their buffers are used again", async () => {
    const size = 40_000;
    const [client] = pair(({ payload }) =>
      (async function* () {
        for (let index = 0; index < 60; index += 1)
          yield json(index, new Uint8Array(size).fill(Number(payload.head) + index));
      })(),
    );
    const consume = async (start: number) => {
      for await (const { head, bytes } of client.stream("fill", json(start), { signal: never })) {
        for (let turn = 0; turn < start % 4; turn += 1) await new Promise(setImmediate);
        assert.ok(Buffer.alloc(size, (start + Number(head)) % 256).equals(bytes), `stream ${start}, item ${head}`);
      }
    };
    await Promise.all([0, 61, 122, 183].map(consume));
    client.close();
  });

  test("a producer runs no further ahead of a slow consumer than the window", async () => {
    let produced = 0;
    const [client] = pair(() =>
      (async function* () {
        for (; produced < 1000; produced += 1) yield json(undefined, new Uint8Array(10_000));
      })(),
    );
    let taken = 0;
    for await (const item of client.stream("x", json(0), { signal: never })) {
      taken += 1;
      assert.equal(item.bytes.length, 10_000);
      await new Promise(setImmediate);
      assert.ok((produced - taken) * 10_000 <= STREAM_WINDOW_BYTES + 10_000, `${produced} produced, ${taken} taken`);
    }
    assert.equal(taken, 1000);
    client.close();
  });

  test("an aborted call rejects at once and aborts its handler", async () => {
    const aborted = Promise.withResolvers<unknown>();
    const [client] = pair((call) => {
      call.signal.addEventListener("abort", () => aborted.resolve(call.signal.reason));
      return new Promise<Payload>(() => undefined);
    });
    const controller = new AbortController();
    const call = client.call("x", json(0), { signal: controller.signal });
    controller.abort();
    await assert.rejects(call, { kind: "Cancelled" });
    assert.equal(((await aborted.promise) as SandboxError).kind, "Cancelled");
    client.close();
  });

  test("leaving a stream early cancels the call and ends the producer", async () => {
    const ended = Promise.withResolvers<void>();
    const [client] = pair(() =>
      (async function* () {
        try {
          for (let index = 0; ; index += 1) yield json(index, new Uint8Array(1000));
        } finally {
          ended.resolve();
        }
      })(),
    );
    for await (const item of client.stream("x", json(0), { signal: never })) if (item.head === 3) break;
    await ended.promise;
    client.close();
  });

  test("a source of an upload that throws fails the call with its error and the handler sees no clean end", async () => {
    const seen = Promise.withResolvers<unknown>();
    const [client] = pair(async (call) => {
      await collect(call.upload).then(
        () => seen.resolve("clean end"),
        (error: unknown) => seen.resolve(error),
      );
      return json(0);
    });
    const source = (async function* () {
      yield json(1);
      throw new SandboxError("TooLarge", "enough");
    })();
    await assert.rejects(client.call("x", json(0), { signal: never, upload: source }), { kind: "TooLarge" });
    assert.equal(((await seen.promise) as SandboxError).kind, "Cancelled");
    client.close();
  });

  test("the deadline travels and ends the handler and the call", async () => {
    const clock = new ManualClock();
    const seen = Promise.withResolvers<number>();
    const [client] = pair(
      (call) => {
        seen.resolve((deadlineOf(call.signal) ?? 0) - clock.now());
        return serveAll(call);
      },
      { clock },
    );
    using deadline = new Deadline(clock, 250);
    const call = client.call("hang", json(0), { signal: deadline.signal });
    assert.equal(await seen.promise, 250);
    clock.advance(250);
    await assert.rejects(call, { kind: "DeadlineExceeded" });
    client.close();
  });

  test("a silent peer fails all calls within four heartbeats", async () => {
    const clock = new ManualClock();
    const [near] = memoryPair();
    const client = new RpcPeer(near, { clock, heartbeatMs: 100 });
    const call = client.call("x", json(0), { signal: never });
    for (let beat = 0; beat < 4; beat += 1) clock.advance(100);
    await assert.rejects(call, { kind: "Unavailable" });
    await client.closed;
  });

  test("a quiet but living peer is kept", async () => {
    const clock = new ManualClock();
    const [client] = pair(serveAll, { clock, heartbeatMs: 100 });
    for (let beat = 0; beat < 20; beat += 1) {
      clock.advance(100);
      await new Promise(setImmediate);
    }
    assert.equal((await client.call("echo", json(7), { signal: never })).head, 7);
    client.close();
  });

  test("a broken connection fails the calls of both sides with Unavailable", async () => {
    const gone = Promise.withResolvers<unknown>();
    const [client, server] = pair((call) => {
      call.signal.addEventListener("abort", () => gone.resolve(call.signal.reason));
      return new Promise<Payload>(() => undefined);
    });
    const call = client.call("x", json(0), { signal: never });
    await new Promise(setImmediate);
    server.close();
    await assert.rejects(call, { kind: "Unavailable" });
    assert.equal(((await gone.promise) as SandboxError).kind, "Unavailable");
    await assert.rejects(client.call("x", json(0), { signal: never }), { kind: "Unavailable" });
  });

  test("a call larger than a frame is refused by the caller", async () => {
    const [client] = pair(serveAll);
    const huge = json(0, new Uint8Array(5 * 1024 * 1024));
    await assert.rejects(client.call("echo", huge, { signal: never }), { kind: "TooLarge" });
    assert.equal((await client.call("echo", json(1), { signal: never })).head, 1);
    client.close();
  });
});

describe("a hostile peer", () => {
  function attack(serve: Serve): { server: RpcPeer; send(frame: Uint8Array): void } {
    const [near, far] = memoryPair();
    near.listen({ message: () => undefined, drained: () => undefined, closed: () => undefined });
    return { server: new RpcPeer(far, { serve }), send: (frame) => near.send(frame) };
  }
  const call = (id: number, upload = false) => encodeCall(id, "hang", json(0), { upload, deadlineMs: undefined });

  test("that sends items without credit is cut off", async () => {
    const { server, send } = attack(serveAll);
    send(call(1, true));
    for (let index = 0; index < 6; index += 1) send(encodeItem(1, "caller", json(0, new Uint8Array(120_000))));
    await server.closed;
  });

  test("that invents credit is cut off", async () => {
    const { server, send } = attack(serveAll);
    send(call(1));
    send(encodeCredit(1, "server", 0xffff_ffff));
    send(encodeCredit(1, "caller", 1));
    await server.closed;
  });

  test("that uses a call number twice is cut off", async () => {
    const { server, send } = attack(serveAll);
    send(call(1));
    send(call(1));
    await server.closed;
  });

  test("that opens too many calls gets Unavailable for the rest", async () => {
    const [client] = pair(serveAll);
    const calls = Array.from({ length: 4100 }, () => client.call("hang", json(0), { signal: never }));
    const outcomes = calls.map((open) => open.catch((error: SandboxError) => error.message));
    const first = await Promise.race(outcomes);
    assert.match(String(first), /more than 4096 calls/);
    client.close();
    await Promise.all(outcomes);
  });

  test("cannot crash the decoder with any bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), fc.nat({ max: 10 }), (bytes, type) => {
        if (bytes.length > 0) bytes[0] = type;
        try {
          decodeFrame(bytes);
        } catch (error) {
          assert.ok(error instanceof SandboxError && error.kind === "InvalidArgument");
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe("random interleavings", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("echo" as const), n: fc.nat(100) }),
    fc.record({ kind: fc.constant("count" as const), n: fc.nat(60), size: fc.nat(30_000) }),
    fc.record({ kind: fc.constant("sum" as const), n: fc.nat(60) }),
    fc.record({ kind: fc.constant("leave" as const), n: fc.nat(20), size: fc.nat(30_000) }),
    fc.record({ kind: fc.constant("cancel" as const), n: fc.nat(5) }),
    fc.record({ kind: fc.constant("fail" as const), n: fc.nat(5) }),
  );

  test("of calls, streams and cancels from both sides all end as the model says", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.boolean(), step), { maxLength: 25 }), async (steps) => {
        const [left, right] = memoryPair();
        const peers = [new RpcPeer(left, { serve: serveAll }), new RpcPeer(right, { serve: serveAll })] as const;
        await Promise.all(steps.map(([flip, one]) => run(peers[flip ? 1 : 0], one)));
        peers[0].close();
        await Promise.all([peers[0].closed, peers[1].closed]);
      }),
      { numRuns: 60 },
    );
  });

  async function run(peer: RpcPeer, one: { kind: string; n: number; size?: number }): Promise<void> {
    const payload = json(one.n, new Uint8Array(one.size ?? 0));
    if (one.kind === "echo") assert.equal((await peer.call("echo", payload, { signal: never })).head, one.n);
    if (one.kind === "count") {
      const heads = await collect(peer.stream("count", payload, { signal: never }));
      assert.deepEqual(
        heads,
        Array.from({ length: one.n }, (_, index) => index),
      );
    }
    if (one.kind === "sum") {
      const answer = await peer.call("sum", payload, { signal: never, upload: items(one.n, 20_000) });
      assert.equal(answer.head, (one.n * (one.n - 1)) / 2 + 0);
    }
    if (one.kind === "leave") {
      let left = one.n;
      for await (const _ of peer.stream("count", json(1000, payload.bytes), { signal: never })) {
        left -= 1;
        if (left <= 0) break;
      }
    }
    if (one.kind === "cancel") {
      const controller = new AbortController();
      setTimeout(() => controller.abort(), one.n);
      await assert.rejects(peer.call("hang", payload, { signal: controller.signal }), { kind: "Cancelled" });
    }
    if (one.kind === "fail") await assert.rejects(peer.call("no", payload, { signal: never }), { kind: "NotFound" });
  }
});
