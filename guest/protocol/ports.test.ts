import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import type { GuestLink } from "#core/guest.ts";
import { decodeListeners } from "#core/listeners.ts";
import { EXEC_DEFAULTS, forEachBuild, nextNumber, Recorder, run, TestAgent } from "./testing.ts";

const MIB = 1024 * 1024;

/** A server on this machine, which the agent of these tests shares the network of. */
async function serve(onSocket: (socket: Socket) => void, host = "127.0.0.1"): Promise<Server & AsyncDisposable> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  server.listen({ port: 0, host });
  await once(server, "listening");
  return server;
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

/** A connection that is open. */
async function connect(link: GuestLink, port: number) {
  const number = nextNumber();
  const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
  const spec = { ...EXEC_DEFAULTS, stdin: "pipe", action: { type: "connect", port } } as const;
  await link.start(number, spec, recorder);
  return { number, recorder };
}

forEachBuild((build) => {
  describe(`connections of the agent (${build})`, { timeout: 60_000 }, () => {
    let agent: TestAgent;
    let link: GuestLink;
    before(async () => {
      agent = await TestAgent.start({ build });
      link = await agent.connect();
    });
    after(() => agent[Symbol.asyncDispose]());

    test("bytes go both ways, and each side closes for itself", async () => {
      await using server = await serve((socket) => socket.pipe(socket));
      const sent = randomBytes(5 * MIB);
      const action = { type: "connect", port: portOf(server) } as const;
      const { end, stdout, pid } = await run(link, action, { input: sent });
      assert.deepEqual([end.cause, end.code, pid], ["exited", 0, 0]);
      assert.ok(stdout.equals(sent));
    });

    test("the server's end comes while ours is open, and ours still arrives", async () => {
      const heard = Promise.withResolvers<string>();
      await using server = await serve(async (socket) => {
        socket.end("goodbye");
        let text = "";
        for await (const chunk of socket) text += chunk;
        heard.resolve(text);
      });
      const { number, recorder } = await connect(link, portOf(server));
      const ended = Promise.withResolvers<void>();
      recorder.onOutput = () => ended.resolve();
      if (recorder.received.stdout === 0) await ended.promise;
      await link.writeStdin(number, 0, Buffer.from("still here"));
      link.closeStdin(number);
      assert.equal((await recorder.status.promise).code, 0);
      assert.equal(await heard.promise, "still here");
      assert.equal(recorder.text("stdout"), "goodbye");
      assert.equal(recorder.finished.stdout, true);
      link.forget(number);
    });

    test("a reset is an errno and no end of the output", async () => {
      await using server = await serve((socket) => {
        socket.write("some");
        socket.once("data", () => socket.resetAndDestroy());
      });
      const { number, recorder } = await connect(link, portOf(server));
      await link.writeStdin(number, 0, Buffer.from("x"));
      const end = await recorder.status.promise;
      assert.deepEqual([end.cause, end.code], ["exited", 104]);
      assert.equal(recorder.text("stdout"), "some");
      assert.equal(recorder.finished.stdout, false);
      link.forget(number);
    });

    test("a reset while much is written keeps what the server said before", async () => {
      await using server = await serve((socket) => {
        socket.once("data", () => socket.write("too large", () => socket.resetAndDestroy()));
      });
      const { number, recorder } = await connect(link, portOf(server));
      // Whether it is ever taken is open: the end of the task is the answer.
      link.writeStdin(number, 0, randomBytes(8 * MIB)).catch(() => undefined);
      const end = await recorder.status.promise;
      assert.deepEqual([end.cause, end.code, recorder.finished.stdout], ["exited", 104, false]);
      link.forget(number);
    });

    test("a connection that is forgotten is reset: the server cannot take it for an end", async () => {
      const outcome = Promise.withResolvers<string>();
      await using server = await serve((socket) => {
        socket
          .once("error", (error: NodeJS.ErrnoException) => outcome.resolve(error.code ?? ""))
          .once("end", () => outcome.resolve("end"));
        socket.resume();
      });
      const { number } = await connect(link, portOf(server));
      await link.writeStdin(number, 0, Buffer.from("half a mess"));
      link.forget(number);
      assert.equal(await outcome.promise, "ECONNRESET");
    });

    test("servers on ::1 alone are reached; where nobody listens the start fails", async () => {
      await using server = await serve((socket) => socket.end("six"), "::1");
      const port = portOf(server);
      assert.equal((await run(link, { type: "connect", port }, { input: new Uint8Array() })).stdout.toString(), "six");
      server.close();
      await assert.rejects(connect(link, port), {
        kind: "PortFailed",
        details: { stage: "connect", code: "ECONNREFUSED" },
      });
    });

    test("a server that takes nothing makes the sender wait, and no one else", async () => {
      const held: Socket[] = [];
      await using server = await serve((socket) => held.push(socket.pause()));
      await using echo = await serve((socket) => socket.pipe(socket));
      const { number } = await connect(link, portOf(server));
      const stuck = link.writeStdin(number, 0, randomBytes(32 * MIB)).then(
        () => "taken",
        () => "dropped",
      );
      const action = { type: "connect", port: portOf(echo) } as const;
      assert.equal((await run(link, action, { input: randomBytes(MIB) })).stdout.length, MIB);
      link.forget(number);
      assert.equal(await stuck, "dropped");
      for (const socket of held) socket.destroy();
    });

    test("half of the tasks are the most that connections take; commands go on", async () => {
      await using server = await serve((socket) => socket.resume());
      const open: number[] = [];
      const descriptors = () => readdirSync(`/proc/${agent.process.pid}/fd`).length;
      const before = descriptors();
      const all = Array.from({ length: 520 }, () => connect(link, portOf(server)));
      const outcomes = await Promise.allSettled(all);
      for (const outcome of outcomes) if (outcome.status === "fulfilled") open.push(outcome.value.number);
      const refused = outcomes.filter((outcome) => outcome.status === "rejected");
      assert.deepEqual([open.length, refused.length], [512, 8]);
      for (const { reason } of refused)
        assert.deepEqual([reason.kind, reason.details.stage], ["SandboxLimit", "limit"]);
      const echo = { type: "exec", argv: [Buffer.from("/bin/echo"), Buffer.from("on")] } as const;
      assert.equal((await run(link, echo)).stdout.toString(), "on\n");
      for (const number of open) link.forget(number);
      for (const number of open) link.forget(number);
      await link.ping(10_000);
      // What an earlier test has left may have been closed meanwhile.
      assert.ok(descriptors() <= before, `${descriptors()} descriptors, not ${before}`);
      link.forget((await connect(link, portOf(server))).number);
    });
  });

  describe(`listeners of the agent (${build})`, { timeout: 60_000 }, () => {
    let agent: TestAgent;
    let link: GuestLink;
    before(async () => {
      agent = await TestAgent.start({ build });
      link = await agent.connect();
    });
    after(() => agent[Symbol.asyncDispose]());

    test("who listens is told with addresses", async () => {
      await using four = await serve((socket) => socket.destroy());
      await using six = await serve((socket) => socket.destroy(), "::1");
      await using any = await serve((socket) => socket.destroy(), "::");
      const { stdout, end } = await run(link, { type: "listeners", port: undefined });
      assert.equal(end.code, 0);
      const found = decodeListeners(stdout);
      for (const [server, address] of [
        [four, "127.0.0.1"],
        [six, "::1"],
        [any, "::"],
      ] as const) {
        assert.ok(
          found.some((listener) => listener.port === portOf(server) && listener.address === address),
          address,
        );
      }
    });

    test("a wait ends when somebody listens, without a connection, or at its limit", async () => {
      const reserved = await serve(() => undefined);
      const port = portOf(reserved);
      const wait = { type: "listeners", port } as const;
      assert.equal((await run(link, wait)).end.cause, "exited");
      await new Promise((resolve) => reserved.close(resolve));
      assert.equal((await run(link, wait, { timeLimitMs: 50 })).end.cause, "timeout");
      const waiting = run(link, wait, { timeLimitMs: 30_000 });
      await link.ping(10_000);
      const late = createServer(() => assert.fail("the wait has connected"));
      late.listen({ port, host: "0.0.0.0" });
      assert.equal((await waiting).end.cause, "exited");
      await new Promise((resolve) => late.close(resolve));
    });

    test("what listens elsewhere than on loopback is not waited for in vain", async () => {
      await using server = await serve((socket) => socket.destroy(), "127.0.0.2");
      const wait = { type: "listeners", port: portOf(server) } as const;
      assert.equal((await run(link, wait, { timeLimitMs: 100 })).end.cause, "timeout");
    });
  });

  describe(`connections and links (${build})`, { timeout: 60_000 }, () => {
    test("connections end with the link they were made on, and nothing of them stays", async () => {
      const outcome = Promise.withResolvers<string>();
      await using server = await serve((socket) => {
        socket
          .once("error", (error: NodeJS.ErrnoException) => outcome.resolve(error.code ?? ""))
          .once("end", () => outcome.resolve("end"));
        socket.resume();
      });
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      await connect(first, portOf(server));
      await first.start(
        nextNumber(),
        { ...EXEC_DEFAULTS, action: { type: "listeners", port: 1 } },
        new Recorder(() => undefined),
      );
      first.close();
      assert.equal(await outcome.promise, "ECONNRESET");
      const second = await agent.connect();
      assert.deepEqual(await second.list(), []);
      second.close();
    });
  });
});
