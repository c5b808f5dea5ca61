import assert from "node:assert/strict";
import { test } from "node:test";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { ManualClock } from "#core/clock.ts";
import type { PortPiece } from "#core/ports.ts";
import { never, Rig, until } from "./test-support/rig.ts";

const ECHO_PORT = 7;

/** A connection whose input a test feeds by hand. */
function connection(rig: Rig, id: Parameters<Rig["edge"]["openPort"]>[0], signal = never) {
  const queue: Uint8Array[] = [];
  let wake = () => {};
  const incoming = async function* () {
    for (;;) {
      const next = queue.shift();
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  const pieces: AsyncIterator<PortPiece> = rig.edge.openPort(id, ECHO_PORT, incoming(), signal)[Symbol.asyncIterator]();
  const send = (text: string) => {
    queue.push(Buffer.from(text));
    wake();
  };
  return { pieces, send };
}

async function ready(rig: Rig, idleTimeoutMs?: number) {
  const spec = aFakeSpec({ lifetime: { idleTimeoutMs, maxLifetimeMs: undefined } });
  await rig.edge.create(spec, never);
  return spec.id;
}

test("bytes of a connection keep a sandbox from being idle, the open connection does not", async () => {
  const clock = new ManualClock();
  await using rig = await Rig.open({ clock });
  const id = await ready(rig, 1_000);
  const { pieces, send } = connection(rig, id);
  assert.equal((await pieces.next()).value, "open");
  for (let round = 0; round < 3; round++) {
    clock.advance(900);
    send("x");
    assert.equal(String((await pieces.next()).value), "x");
    assert.equal((await rig.edge.inspect(id, never)).state, "ready");
  }
  const end = assert.rejects(pieces.next(), { kind: "SandboxLost" });
  clock.advance(1_001);
  await end;
  await until(async () => (await rig.edge.list({}, never)).length === 0);
});

test("a wait for a port keeps a sandbox from being idle", async () => {
  const clock = new ManualClock();
  await using rig = await Rig.open({ clock });
  const id = await ready(rig, 1_000);
  const waiting = rig.edge.waitForPort(id, 9, 5_000, never);
  await until(() => rig.host.get(id)?.tasks.size === 1);
  clock.advance(4_000);
  assert.equal((await rig.edge.inspect(id, never)).state, "ready");
  clock.advance(1_000);
  assert.equal(await waiting, false);
});

test("whatever ends a connection, its task is dropped", async () => {
  await using rig = await Rig.open();
  const id = await ready(rig);
  const tasks = () => rig.host.get(id)?.tasks.size;
  const left = new AbortController();
  const aborted = connection(rig, id, left.signal);
  assert.equal((await aborted.pieces.next()).value, "open");
  assert.equal(tasks(), 1);
  const gone = aborted.pieces.next();
  left.abort(new Error("the caller left"));
  await assert.rejects(gone, /the caller left/);
  assert.equal(tasks(), 0);
  const abandoned = connection(rig, id);
  assert.equal((await abandoned.pieces.next()).value, "open");
  await abandoned.pieces.return?.();
  assert.equal(tasks(), 0);
});

test("a connection breaks with the link to its agent, and a new one is made over the next", async () => {
  await using rig = await Rig.open();
  const id = await ready(rig);
  const first = connection(rig, id);
  assert.equal((await first.pieces.next()).value, "open");
  const broken = assert.rejects(first.pieces.next(), { kind: "Unavailable" });
  rig.host.get(id)?.breakLinks();
  await broken;
  const second = connection(rig, id);
  assert.equal((await second.pieces.next()).value, "open");
  second.send("again");
  assert.equal(String((await second.pieces.next()).value), "again");
  await second.pieces.return?.();
  // The fake keeps tasks over links, as agents keep commands: what an edge finds and does not know, it forgets.
  await until(() => rig.host.get(id)?.tasks.size === 0);
});

test("a connection breaks with its agent, and says that the sandbox was lost", async () => {
  await using rig = await Rig.open();
  const id = await ready(rig);
  const { pieces } = connection(rig, id);
  assert.equal((await pieces.next()).value, "open");
  const broken = assert.rejects(pieces.next(), { kind: "SandboxLost" });
  rig.host.get(id)?.die();
  await broken;
  assert.equal((await rig.edge.inspect(id, never)).state, "failed");
});
