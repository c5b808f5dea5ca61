import assert from "node:assert/strict";
import { once } from "node:events";
import { createConnection, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { describe, test } from "node:test";
import fc from "fast-check";
import { connectUnix, openLink } from "./connect.ts";
import { FRAME, FRAME_HEADER_BYTES, newFrame, putOffset } from "./frames.ts";
import { EXEC_DEFAULTS, exec, forEachBuild, nextNumber, Recorder, run, shell, TestAgent } from "./testing.ts";

/** A stream whose other end the test plays. */
class ScriptedAgent extends Duplex {
  readonly sent: Buffer[] = [];

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.sent.push(chunk);
    done();
  }

  say(...frames: readonly Buffer[]): void {
    this.push(Buffer.concat(frames));
  }

  greet(): void {
    const frame = newFrame(FRAME.welcome, 0, 0, 32);
    frame.fill(7, 12);
    frame.writeUInt32LE(1, 12);
    frame.writeUInt32LE(1000, 24);
    this.say(frame);
  }
}

/** Takes the greeting and then reads nothing any more. */
class DeafAgent extends ScriptedAgent {
  override _write(chunk: Buffer, encoding: string, done: () => void): void {
    if (this.sent.length === 0) super._write(chunk, encoding, done);
  }
}

async function greeted(agent = new ScriptedAgent()) {
  const opening = openLink(agent, AbortSignal.timeout(5000));
  agent.greet();
  return { agent, link: await opening };
}

function out(task: number, stream: number, offset: number, text: string): Buffer {
  const frame = newFrame(FRAME.out, stream, task, 8 + text.length);
  putOffset(frame, 12, offset);
  frame.write(text, 20);
  return frame;
}

/** All that is said of a task which writes nothing. */
function ended(task: number): Buffer[] {
  const ends = [0, 1].map((stream) => newFrame(FRAME.outEof, stream, task, 8));
  const told = [...ends, newFrame(FRAME.exit, 0, task, 28)];
  return [started(task), ...told.map((frame) => frame.fill(0, FRAME_HEADER_BYTES))];
}

/** The types of whole frames that lie one behind the other. */
function typesIn(bytes: Buffer): number[] {
  const types: number[] = [];
  for (let at = 0; at < bytes.length; at += 4 + bytes.readUInt32LE(at)) types.push(bytes.readUInt8(at + 4));
  return types;
}

function started(task: number): Buffer {
  const frame = newFrame(FRAME.started, 0, task, 4);
  frame.writeUInt32LE(99, 12);
  return frame;
}

describe("a link against an agent that misbehaves", () => {
  test("a task of which nothing more can come is forgotten along with the next start, any other one at once", async () => {
    const { agent, link } = await greeted();
    const task = { ...EXEC_DEFAULTS, action: exec("/bin/true") };
    const recorder = new Recorder(() => undefined);
    const first = link.start(1, task, recorder);
    agent.say(...ended(1));
    await first;
    const types = () => agent.sent.flatMap((chunk) => typesIn(chunk));
    agent.sent.length = 0;
    link.forget(1);
    assert.deepEqual(types(), []);
    void link.start(2, task, recorder).catch(() => undefined);
    assert.deepEqual([types(), agent.sent.length], [[FRAME.forget, FRAME.start], 1]);
    link.forget(2);
    assert.deepEqual(types().at(-1), FRAME.forget);
    link.close();
  });

  test("nobody listening is SandboxLost, an abort its own reason", async () => {
    await assert.rejects(connectUnix("/tmp/no-such-dir/agent.sock", AbortSignal.timeout(1000)), {
      kind: "SandboxLost",
    });
    await assert.rejects(connectUnix("/tmp/x", AbortSignal.abort(new Error("mine"))), /mine/);
    const silent = new AbortController();
    const opening = openLink(new ScriptedAgent(), silent.signal);
    silent.abort(new Error("too slow"));
    await assert.rejects(opening, /too slow/);
  });

  test("another version is FailedPrecondition", async () => {
    const agent = new ScriptedAgent();
    const opening = openLink(agent, AbortSignal.timeout(5000));
    const refusal = newFrame(FRAME.protocolError, 0, 0, 4);
    refusal.writeUInt32LE(9, 12);
    agent.say(refusal);
    await assert.rejects(opening, { kind: "FailedPrecondition", details: { ours: 1, theirs: 9 } });
  });

  test("output out of order closes the link and fails what waits", async () => {
    const { agent, link } = await greeted();
    const recorder = new Recorder(() => {});
    const start = link.start(1, { ...EXEC_DEFAULTS, action: exec("x") }, recorder);
    agent.say(started(1), out(1, 0, 0, "abc"));
    assert.deepEqual(await start, { pid: 99 });
    const list = link.list();
    agent.say(out(1, 0, 5, "late"));
    await link.closed;
    await assert.rejects(list, { kind: "Internal" });
    assert.equal(recorder.text("stdout"), "abc");
  });

  test("output beyond the window closes the link: nothing piles up behind a slow reader", async () => {
    const { agent, link } = await greeted();
    const recorder = new Recorder((stream, offset) => offset <= 65_536 && link.acknowledge(1, stream, offset));
    const start = link.start(1, { ...EXEC_DEFAULTS, action: exec("x") }, recorder);
    const piece = "x".repeat(65_536);
    agent.say(started(1), ...[0, 1, 2, 3, 4].map((index) => out(1, 0, index * piece.length, piece)));
    await start;
    assert.equal(recorder.received.stdout, 5 * piece.length);
    agent.say(out(1, 0, 5 * piece.length, "x"));
    await link.closed;
    assert.equal(recorder.received.stdout, 5 * piece.length);
  });

  test("a list without an end closes the link", async () => {
    const { agent, link } = await greeted();
    const list = link.list();
    const report = newFrame(FRAME.task, 0, 1, 64).fill(0, 12);
    agent.say(...Array.from({ length: 1025 }, () => report));
    await assert.rejects(list, { kind: "Internal" });
    await link.closed;
  });

  test("acknowledgements do not pile up for an agent that sends and never reads", async () => {
    const { agent, link } = await greeted(new DeafAgent());
    const recorder = new Recorder((stream, offset) => link.acknowledge(1, stream, offset));
    link.start(1, { ...EXEC_DEFAULTS, action: exec("x") }, recorder).catch(() => undefined);
    agent.say(started(1), ...Array.from({ length: 50_000 }, (_, offset) => out(1, 0, offset, "x")));
    while (recorder.received.stdout < 50_000) await new Promise(setImmediate);
    assert.ok(agent.writableLength < 2 * agent.writableHighWaterMark, `${agent.writableLength} bytes wait`);
    link.close();
  });

  test("hostile bytes only ever close the link", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
        const { agent, link } = await greeted();
        agent.say(Buffer.from(bytes));
        await new Promise(setImmediate);
        link.close();
        await link.closed;
      }),
      { numRuns: 200 },
    );
  });

  test("frames about forgotten tasks are passed over", async () => {
    const { agent, link } = await greeted();
    const start = link.start(5, { ...EXEC_DEFAULTS, action: exec("x") }, new Recorder(() => {}));
    link.forget(5);
    await assert.rejects(start, { kind: "Cancelled" });
    agent.say(started(5), out(5, 1, 0, "x"), out(77, 0, 3, "y"));
    const ping = link.ping(5000);
    const pong = newFrame(FRAME.pong, 0, 0, 8);
    putOffset(pong, 12, 1);
    agent.say(pong);
    await ping;
    link.close();
  });

  test("a ping without an answer is DeadlineExceeded, calls on a closed link Unavailable", async () => {
    const { agent, link } = await greeted();
    await assert.rejects(link.ping(10), { kind: "DeadlineExceeded" });
    const start = link.start(1, { ...EXEC_DEFAULTS, action: exec("x") }, new Recorder(() => {}));
    agent.destroy();
    await assert.rejects(start, { kind: "Unavailable" });
    await link.closed;
    await assert.rejects(link.ping(10), { kind: "Unavailable" });
    link.forget(1);
    link.signal(1, 9, "group");
  });
});

async function raw(agent: TestAgent, ...chunks: readonly Buffer[]): Promise<Socket> {
  const socket = createConnection(agent.socket);
  await once(socket, "connect");
  socket.resume();
  socket.on("error", () => {});
  for (const chunk of chunks) socket.write(chunk);
  return socket;
}

function hello(flag = 0): Buffer {
  const frame = newFrame(FRAME.hello, flag, 0, 4);
  frame.writeUInt32LE(1, 12);
  return frame;
}

forEachBuild((build) => {
  describe(`the ${build} agent against an edge that misbehaves`, () => {
    test("a malformed frame closes the connection, not the agent, and no task is lost", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const number = nextNumber();
      await link.start(number, { ...EXEC_DEFAULTS, stdin: "pipe", action: exec("cat") }, new Recorder(() => {}));
      const huge = hello();
      huge.writeUInt32LE(0xffffffff, 0);
      const reserved = hello();
      reserved.writeUInt16LE(1, 6);
      const old = hello();
      old.writeUInt32LE(99, 12);
      const beyond = newFrame(FRAME.ack, 0, number, 8);
      putOffset(beyond, 12, 1000);
      const stream = newFrame(FRAME.ack, 7, number, 8);
      const wrong: readonly (readonly Buffer[])[] = [
        [huge],
        [reserved],
        [old],
        [hello(2)],
        [newFrame(FRAME.ping, 0, 0, 8)],
        [hello(), hello()],
        [hello(), newFrame(FRAME.ping, 0, 0, 7)],
        [hello(), newFrame(FRAME.out, 0, 0, 9)],
        [hello(), newFrame(200, 0, 0, 0)],
        [hello(), newFrame(FRAME.stdin, 0, number, 8 + 65_537)],
        [hello(), newFrame(FRAME.start, 0, 5, 2 * 1024 * 1024 + 1)],
        [hello(), beyond],
        [hello(), stream],
        [hello(), newFrame(FRAME.signal, 2, number, 4)],
      ];
      for (const chunks of wrong) {
        const socket = await raw(agent, ...chunks);
        if (!socket.closed) await new Promise((resolve) => socket.once("close", resolve));
      }
      const again = await agent.connect();
      assert.deepEqual(
        (await again.list()).map((report) => report.number),
        [number],
      );
      again.close();
    });

    test("a copied agent takes another boot id when it is told so, and keeps it and its tasks", async () => {
      await using agent = await TestAgent.start({ build });
      const before = await agent.connect();
      const number = nextNumber();
      await before.start(number, { ...EXEC_DEFAULTS, stdin: "pipe", action: exec("cat") }, new Recorder(() => {}));
      const socket = await raw(agent, hello(1));
      socket.pause();
      await once(socket, "readable");
      socket.destroy();
      const boots = [before.hello.bootId];
      for (let links = 0; links < 2; links++) {
        const after = await agent.connect();
        boots.push(after.hello.bootId);
        assert.deepEqual(
          (await after.list()).map((report) => report.number),
          [number],
        );
        after.close();
      }
      assert.notEqual(boots[1], boots[0]);
      assert.equal(boots[2], boots[1]);
    });

    test("a START that makes no sense is refused alone", async () => {
      await using agent = await TestAgent.start({ build });
      const socket = createConnection(agent.socket);
      const chunks: Buffer[] = [];
      socket.on("data", (chunk: Buffer) => chunks.push(chunk));
      const bad = newFrame(FRAME.start, 0, 3, 100);
      bad.fill(0xff, 12);
      const large = newFrame(FRAME.start, 0, 4, 300_000);
      large.fill(0, 12);
      for (const chunk of [hello(), bad, large, newFrame(FRAME.list, 0, 0, 0)]) socket.write(chunk);
      const expected = 44 + 16 + 16 + 12;
      while (Buffer.concat(chunks).length < expected) await once(socket, "data");
      const bytes = Buffer.concat(chunks);
      assert.deepEqual([bytes[44 + 4], bytes[44 + 5], bytes[60 + 4], bytes[60 + 5], bytes[76 + 4]], [67, 1, 67, 1, 73]);
      socket.destroy();
    });

    test("random bytes after a greeting never stop the agent", async () => {
      await using agent = await TestAgent.start({ build });
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.integer({ min: 0, max: 12 }), fc.nat(3), fc.nat(3), fc.uint8Array({ maxLength: 60 })), {
            maxLength: 12,
          }),
          async (frames) => {
            const chunks = frames.map(([type, flag, task, payload]) => {
              const frame = newFrame(type, flag, task, payload.length);
              frame.set(payload, 12);
              return frame;
            });
            (await raw(agent, hello(), ...chunks)).destroy();
          },
        ),
        { numRuns: 100 },
      );
      const link = await agent.connect();
      assert.equal((await shell(link, "exit 6")).end.code, 6);
      link.close();
    });

    test("an edge that stops reading stalls its tasks and nothing else; a new one goes on", async () => {
      await using agent = await TestAgent.start({ build });
      const first = await agent.connect();
      const numbers = Array.from({ length: 8 }, () => nextNumber());
      const action = exec("/bin/sh", "-c", "head -c 2000000 /dev/zero");
      for (const number of numbers) await first.start(number, { ...EXEC_DEFAULTS, action }, new Recorder(() => {}));
      first.close();
      // Greets, asks for everything, and reads nothing.
      const deaf = createConnection(agent.socket);
      await once(deaf, "connect");
      deaf.on("error", () => {});
      deaf.pause();
      deaf.write(hello());
      for (const number of numbers) {
        deaf.write(newFrameOfZeros(FRAME.ack, 0, number));
        deaf.write(newFrameOfZeros(FRAME.ack, 1, number));
      }
      for (let i = 0; i < 2000; i++) deaf.write(newFrameOfZeros(FRAME.ping, 0, 0));
      await new Promise(setImmediate);
      const link = await agent.connect();
      for (const number of numbers) {
        const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
        link.attach(number, { stdout: 0, stderr: 0 }, recorder);
        assert.equal((await recorder.status.promise).code, 0);
        assert.equal(recorder.received.stdout, 2_000_000);
      }
      assert.equal((await run(link, exec("true"))).end.code, 0);
      deaf.destroy();
      link.close();
    });
  });
});

function newFrameOfZeros(type: number, flag: number, task: number): Buffer {
  const frame = newFrame(type, flag, task, 8);
  frame.fill(0, 12);
  return frame;
}
