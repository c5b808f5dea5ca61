import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type FakeMoment, failing } from "#backends/fake/config.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { DEFAULT_RESOURCES, type SandboxSpec } from "#core/sandbox.ts";
import { bytesOf, listed, never, Rig, run, start, until } from "./test-support/rig.ts";

const broken = () => new SandboxError("Internal", "as scripted");
const NOTHING = { cpus: 0, memoryMiB: 0 };

/** Holds every call at one moment until `open`. */
function gate(moment: FakeMoment) {
  const { promise, resolve: open } = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const script = async (at: FakeMoment) => {
    if (at !== moment) return;
    reached.resolve();
    await promise;
  };
  return { script, reached: reached.promise, open };
}

async function stateOf(rig: Rig, { id }: SandboxSpec): Promise<string> {
  return (await rig.edge.inspect(id, never)).state;
}

async function promised(rig: Rig) {
  const { cpus, memoryMiB } = (await rig.edge.info(never)).promised;
  return { cpus, memoryMiB };
}

describe("a paused sandbox", () => {
  test("gives its compute back, and has it again when it goes on; a repeat of either does nothing", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    const { generation } = await rig.edge.create(spec, never);
    const held = await promised(rig);
    assert.equal((await rig.edge.pause(spec.id, never)).state, "paused");
    assert.deepEqual(await promised(rig), NOTHING);
    assert.equal((await rig.edge.pause(spec.id, never)).generation, generation + 2);
    assert.ok((await rig.edge.resources(never)).every(({ expected, found }) => expected === found));
    assert.equal((await rig.edge.resume(spec.id, never)).state, "ready");
    assert.equal((await rig.edge.resume(spec.id, never)).state, "ready");
    assert.deepEqual(await promised(rig), held);
  });

  test("goes on when something is asked of it, once for all who ask", async () => {
    const resumes: string[] = [];
    const script = (moment: FakeMoment) => void (moment === "resume" && resumes.push(moment));
    await using rig = await Rig.open({ script });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    await rig.edge.pause(spec.id, never);
    const results = await Promise.all([1, 2, 3].map((n) => run(rig.edge, spec.id, ["echo", String(n)])));
    assert.deepEqual(
      results.map(({ output }) => String(Buffer.from(output?.stdout ?? []))),
      ["1\n", "2\n", "3\n"],
    );
    assert.equal(resumes.length, 1);
  });

  test("keeps what runs in it: its input, its output and its end come as if nothing had been", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const { command } = await start(rig.edge, spec.id, ["cat"], { stdin: "pipe" });
    const write = (offset: number, text: string, close: boolean) =>
      rig.edge.writeStdin(spec.id, command.id, { offset, bytes: once(text), close }, never);
    const all = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    const reading = bytesOf(rig.edge.readOutput(spec.id, command.id, all, never));
    await write(0, "one ", false);
    await rig.edge.pause(spec.id, never);
    assert.equal((await rig.edge.inspect(spec.id, never)).runningCommands, 1);
    await write(4, "two", true);
    assert.equal((await rig.edge.waitCommand(spec.id, command.id, 20_000, never)).status?.code, 0);
    assert.equal(String(await reading), "one two");
  });

  test("does not go on where there is no room: NodeFull, and it stays paused", async () => {
    await using rig = await Rig.open({ config: { cpuOvercommit: 1 } });
    const [spec, other] = [1, 2].map(() => aFakeSpec({ resources: { ...DEFAULT_RESOURCES, cpus: 3 } }));
    assert.ok(spec !== undefined && other !== undefined);
    await rig.edge.create(spec, never);
    await rig.edge.pause(spec.id, never);
    await rig.edge.create(other, never);
    await assert.rejects(rig.edge.resume(spec.id, never), { kind: "NodeFull" });
    await assert.rejects(run(rig.edge, spec.id, ["true"]), { kind: "NodeFull" });
    assert.equal(await stateOf(rig, spec), "paused");
    await rig.edge.destroy(other.id, never);
    assert.equal((await rig.edge.resume(spec.id, never)).state, "ready");
  });

  test("is not idle, and ends with its longest lifetime", async () => {
    const clock = new ManualClock();
    await using rig = await Rig.open({ clock });
    const spec = aFakeSpec({ lifetime: { idleTimeoutMs: 1_000, maxLifetimeMs: 60_000 } });
    await rig.edge.create(spec, never);
    await rig.edge.pause(spec.id, never);
    clock.advance(30_000);
    assert.equal(await stateOf(rig, spec), "paused");
    clock.advance(30_000);
    await until(async () => (await rig.edge.list({}, never)).length === 0);
  });

  test("can be removed, and so can one on its way there or back", async () => {
    for (const moment of [undefined, "pause", "resume"] as const) {
      const held = moment === undefined ? undefined : gate(moment);
      await using rig = await Rig.open(held === undefined ? {} : { script: held.script });
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const moving =
        moment === "resume"
          ? rig.edge.pause(spec.id, never).then(() => rig.edge.resume(spec.id, never))
          : rig.edge.pause(spec.id, never);
      await (held?.reached ?? moving);
      const settled = Promise.allSettled([moving]);
      await rig.edge.destroy(spec.id, never);
      held?.open();
      await settled;
      assert.equal((await rig.edge.list({}, never)).length, 0);
      assert.deepEqual((await rig.edge.info(never)).promised, { ...NOTHING, sandboxes: 0 });
    }
  });
});

describe("what goes wrong with a pause", () => {
  test("one that cannot be saved goes on", async () => {
    await using rig = await Rig.open({ script: failing("pause", 1, broken) });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    await assert.rejects(rig.edge.pause(spec.id, never), { kind: "Internal", message: "as scripted" });
    assert.equal((await run(rig.edge, spec.id, ["true"])).command.status?.code, 0);
    assert.equal((await rig.edge.pause(spec.id, never)).state, "paused");
  });

  test("pause acknowledged, later resume fails: it stays paused, without compute, and the next attempt works", async () => {
    await using rig = await Rig.open({ script: failing("resume", 1, broken) });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    await rig.edge.pause(spec.id, never);
    await assert.rejects(run(rig.edge, spec.id, ["true"]), { kind: "Internal", message: "as scripted" });
    assert.equal(await stateOf(rig, spec), "paused");
    assert.deepEqual(await promised(rig), NOTHING);
    assert.equal((await run(rig.edge, spec.id, ["true"])).command.status?.code, 0);
  });

  test("one that is lost fails, in a pause and in a resume, and gives everything back", async () => {
    for (const paused of [false, true]) {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const { command } = await start(rig.edge, spec.id, ["sleep", "100"]);
      if (paused) await rig.edge.pause(spec.id, never);
      const held = rig.host.get(spec.id);
      if (paused) held.die();
      else held.alive = false;
      await assert.rejects(paused ? rig.edge.resume(spec.id, never) : rig.edge.pause(spec.id, never), {
        kind: "SandboxLost",
      });
      assert.equal(await stateOf(rig, spec), "failed");
      assert.equal((await rig.edge.waitCommand(spec.id, command.id, 1, never)).status?.cause, "agent-lost");
      assert.deepEqual(await promised(rig), NOTHING);
    }
  });

  test("one that takes too long ends with DeadlineExceeded, and the sandbox goes on", async () => {
    const clock = new ManualClock();
    const held = gate("pause");
    await using rig = await Rig.open({ clock, script: held.script });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const pausing = rig.edge.pause(spec.id, never);
    const refused = assert.rejects(pausing, { kind: "DeadlineExceeded" });
    await held.reached;
    clock.advance(60_000);
    await refused;
    assert.equal(await stateOf(rig, spec), "ready");
    held.open();
  });

  test("a sandbox that is being made, or that failed, takes neither", async () => {
    const held = gate("create");
    await using rig = await Rig.open({ script: held.script });
    const spec = aFakeSpec();
    const creating = rig.edge.create(spec, never);
    await held.reached;
    await assert.rejects(rig.edge.pause(spec.id, never), { kind: "FailedPrecondition" });
    await assert.rejects(rig.edge.resume(spec.id, never), { kind: "FailedPrecondition" });
    held.open();
    await creating;
    rig.host.get(spec.id).die();
    await until(async () => (await stateOf(rig, spec)) === "failed");
    await assert.rejects(rig.edge.pause(spec.id, never), { kind: "FailedPrecondition" });
    await assert.rejects(rig.edge.resume(spec.id, never), { kind: "FailedPrecondition" });
  });
});

describe("after a restart of the edge", () => {
  for (const how of ["crash", "restart"] as const) {
    test(`by a ${how}, a paused sandbox is paused still, and goes on with its commands`, async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const { command } = await start(rig.edge, spec.id, ["cat"], { stdin: "pipe" });
      await rig.edge.pause(spec.id, never);
      await rig[how]();
      assert.equal(await stateOf(rig, spec), "paused");
      assert.deepEqual(await promised(rig), NOTHING);
      assert.equal((await listed(rig.edge, spec.id))[0]?.status, undefined);
      await rig.edge.writeStdin(spec.id, command.id, { offset: 0, bytes: once("x"), close: true }, never);
      assert.equal((await rig.edge.waitCommand(spec.id, command.id, 20_000, never)).status?.code, 0);
    });
  }

  for (const moment of ["pause", "resume"] as const) {
    test(`in the middle of a ${moment}, the sandbox goes on`, async () => {
      const held = gate(moment);
      let open = false;
      const script = (at: FakeMoment) => (open ? undefined : held.script(at));
      await using rig = await Rig.open({ script });
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const before = await promised(rig);
      const moving = rig.edge.pause(spec.id, never).then(() => rig.edge.resume(spec.id, never));
      const settled = Promise.allSettled([moving]);
      await held.reached;
      open = true;
      const crashed = rig.crash();
      held.open();
      await crashed;
      assert.equal(await stateOf(rig, spec), "ready");
      assert.deepEqual(await promised(rig), before);
      assert.equal((await run(rig.edge, spec.id, ["true"])).command.status?.code, 0);
      await settled;
    });
  }

  test("a paused sandbox of which nothing is left has failed", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    await rig.edge.pause(spec.id, never);
    rig.host.get(spec.id).die();
    await rig.crash();
    assert.equal(await stateOf(rig, spec), "failed");
  });
});

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
