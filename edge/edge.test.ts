import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { failing } from "#backends/fake/config.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId, type SandboxId } from "#core/ids.ts";
import { DEFAULT_RESOURCES } from "#core/sandbox.ts";
import { bytesOf, never, Rig, run, start, until } from "./test-support/rig.ts";

const broken = () => new SandboxError("Internal", "as scripted");

async function leftovers(rig: Rig): Promise<number> {
  const counts = await rig.edge.resources(never);
  return counts.reduce((sum, { found }) => sum + found, 0);
}

describe("create", () => {
  test("is ready, runs commands and is gone after destroy", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    const info = await rig.edge.create(spec, never);
    assert.equal(info.state, "ready");
    const result = await run(rig.edge, spec.id, ["echo", "hello"]);
    assert.equal(Buffer.from(result.output?.stdout ?? []).toString(), "hello\n");
    assert.equal(result.command.status?.code, 0);
    await rig.edge.destroy(spec.id, never);
    await rig.edge.destroy(spec.id, never);
    await assert.rejects(rig.edge.inspect(spec.id, never), { kind: "NotFound" });
    assert.equal(await leftovers(rig), 0);
    assert.deepEqual((await rig.edge.info(never)).promised, { cpus: 0, memoryMiB: 0, sandboxes: 0 });
  });

  test("is idempotent, joins one under way, and refuses another spec under the id", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    const [first, second] = await Promise.all([rig.edge.create(spec, never), rig.edge.create({ ...spec }, never)]);
    assert.deepEqual(first, second);
    assert.equal((await rig.edge.create(spec, never)).generation, first.generation);
    assert.equal(rig.host.sandboxes.size, 1);
    const other = { ...spec, user: "1000" };
    await assert.rejects(rig.edge.create(other, never), { kind: "AlreadyExists" });
  });

  for (const moment of ["check", "create", "created", "connect"] as const) {
    test(`that fails at ${moment} leaves nothing, and the id can be used again`, async () => {
      await using rig = await Rig.open({ script: failing(moment, 1, broken) });
      const spec = aFakeSpec();
      await assert.rejects(rig.edge.create(spec, never), { kind: "Internal", message: "as scripted" });
      assert.equal(await leftovers(rig), 0);
      assert.equal((await rig.edge.list({}, never)).length, 0);
      assert.equal((await rig.edge.info(never)).promised.memoryMiB, 0);
      assert.equal((await rig.edge.create(spec, never)).state, "ready");
    });
  }

  test("that takes too long is undone with DeadlineExceeded", async () => {
    const clock = new ManualClock();
    const script = (moment: string) => (moment === "created" ? new Promise<void>(() => {}) : undefined);
    await using rig = await Rig.open({ clock, script, config: { createTimeoutMs: 1000 } });
    const creating = rig.edge.create(aFakeSpec(), never);
    await until(() => rig.host.sandboxes.size === 1);
    clock.advance(1000);
    await assert.rejects(creating, { kind: "DeadlineExceeded" });
    assert.equal(await leftovers(rig), 0);
  });

  test("is undone when everybody who waited has left, not before", async () => {
    const gate = Promise.withResolvers<void>();
    await using rig = await Rig.open({ script: (moment) => (moment === "created" ? gate.promise : undefined) });
    const spec = aFakeSpec();
    const first = new AbortController();
    const second = new AbortController();
    const waits = [rig.edge.create(spec, first.signal), rig.edge.create(spec, second.signal)];
    const failed = waits.map((wait) => assert.rejects(wait));
    first.abort();
    await failed[0];
    assert.equal((await rig.edge.inspect(spec.id, never)).state, "creating");
    second.abort();
    await failed[1];
    await until(async () => (await rig.edge.list({}, never)).length === 0);
    assert.equal(await leftovers(rig), 0);
  });

  test("is refused beyond the node's capacity, with nothing left", async () => {
    await using rig = await Rig.open({ config: { memoryOvercommit: 1 } });
    const big = aFakeSpec({ resources: { ...DEFAULT_RESOURCES, memoryMiB: 9000 } });
    await assert.rejects(rig.edge.create(big, never), { kind: "NodeFull", retry: "elsewhere" });
    assert.equal((await rig.edge.list({}, never)).length, 0);
  });

  test("is refused while the machine has less memory available than its reserve, with nothing left", async () => {
    let availableMiB = 499;
    await using rig = await Rig.open({ config: { memoryReserveMiB: 500 }, availableMemoryMiB: () => availableMiB });
    await assert.rejects(rig.edge.create(aFakeSpec(), never), {
      kind: "NodeFull",
      retry: "elsewhere",
      details: { lacking: "availableMemoryMiB", left: 499, limit: 500 },
    });
    assert.equal(await leftovers(rig), 0);
    assert.deepEqual((await rig.edge.info(never)).promised, { cpus: 0, memoryMiB: 0, sandboxes: 0 });
    availableMiB = 500;
    assert.equal((await rig.edge.create(aFakeSpec(), never)).state, "ready");
    // What lives is never ended for it, nor kept from going.
    availableMiB = 0;
    await rig.crash();
    const [survivor = assert.fail("not adopted")] = await rig.edge.list({}, never);
    assert.equal((await run(rig.edge, survivor.spec.id, ["true"])).command.status?.code, 0);
    await rig.edge.destroy(survivor.spec.id, never);
  });

  test("that a closing node takes back may be tried elsewhere", async () => {
    const script = (moment: string) => (moment === "create" ? new Promise<void>(() => {}) : undefined);
    await using rig = await Rig.open({ script });
    const refused = assert.rejects(rig.edge.create(aFakeSpec(), never), { kind: "Unavailable", message: /closing/ });
    await until(async () => (await rig.edge.list({}, never)).length === 1);
    await rig.edge.close({ keepSandboxes: false });
    await refused;
  });

  test("refuses bad numbers, naming the field", async () => {
    await using rig = await Rig.open();
    for (const memoryMiB of [0, -1, NaN, 1.5, Infinity]) {
      const spec = aFakeSpec({ resources: { ...DEFAULT_RESOURCES, memoryMiB } });
      await assert.rejects(rig.edge.create(spec, never), { kind: "InvalidArgument", message: /memoryMiB/ });
    }
    for (const maxLifetimeMs of [0, -5]) {
      const spec = aFakeSpec({ lifetime: { idleTimeoutMs: undefined, maxLifetimeMs } });
      await assert.rejects(rig.edge.create(spec, never), { kind: "InvalidArgument", message: /maxLifetimeMs/ });
    }
    const foreign = aFakeSpec({ id: newSandboxId(parseEdgeId("other")) });
    await assert.rejects(rig.edge.create(foreign, never), { kind: "InvalidArgument" });
    await assert.rejects(rig.edge.create(aFakeSpec({ backend: "microvm" }), never), { kind: "FailedPrecondition" });
  });

  test("works again under an id that is being destroyed", async () => {
    const gate = Promise.withResolvers<void>();
    await using rig = await Rig.open({ script: (moment) => (moment === "destroy" ? gate.promise : undefined) });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const destroyed = rig.edge.destroy(spec.id, never);
    const created = rig.edge.create(spec, never);
    gate.resolve();
    await destroyed;
    assert.equal((await created).state, "ready");
  });
});

describe("destroy", () => {
  test("ends a creation under way", async () => {
    await using rig = await Rig.open({
      script: (moment) => (moment === "create" ? new Promise<void>(() => {}) : undefined),
    });
    const spec = aFakeSpec();
    const creating = assert.rejects(rig.edge.create(spec, never), { kind: "Cancelled" });
    await rig.edge.destroy(spec.id, never);
    await creating;
    assert.equal(await leftovers(rig), 0);
  });

  test("of an unknown sandbox succeeds", async () => {
    await using rig = await Rig.open();
    await rig.edge.destroy(aFakeSpec().id, never);
  });

  test("that fails says so, is tried again by the node and by the caller", async () => {
    const clock = new ManualClock();
    await using rig = await Rig.open({ clock, script: failing("destroy", 2, broken) });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    await assert.rejects(rig.edge.destroy(spec.id, never), { kind: "Unavailable" });
    assert.equal((await rig.edge.inspect(spec.id, never)).state, "destroying");
    await assert.rejects(rig.edge.destroy(spec.id, never), { kind: "Unavailable" });
    clock.advance(5_000);
    await until(async () => (await rig.edge.list({}, never)).length === 0);
    assert.equal(rig.host.sandboxes.size, 0);
  });

  test("ends commands as sandbox-stopped and their readers, and takes the outputs along", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const { command } = await start(rig.edge, spec.id, ["sleep", "1000"]);
    await run(rig.edge, spec.id, ["yes", "100000"]);
    assert.equal(readdirSync(join(rig.dataDir, "output", spec.id)).length, 1);
    const waiting = rig.edge.waitCommand(spec.id, command.id, 20_000, never);
    const read = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    const reading = bytesOf(rig.edge.readOutput(spec.id, command.id, read, never));
    await new Promise(setImmediate);
    await rig.edge.destroy(spec.id, never);
    assert.equal((await waiting).status?.cause, "sandbox-stopped");
    assert.equal((await reading).length, 0);
    assert.equal(existsSync(join(rig.dataDir, "output", spec.id)), false);
  });
});

describe("the loss of an agent", () => {
  test("that only lost its connection is healed, and commands go on", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const { command } = await start(rig.edge, spec.id, ["cat"], { stdin: "pipe" });
    await feed(rig, spec.id, command.id, 0, "before ");
    rig.host.get(spec.id).breakLinks();
    await feed(rig, spec.id, command.id, 7, "after", true);
    const ended = await rig.edge.waitCommand(spec.id, command.id, 20_000, never);
    assert.equal(ended.status?.code, 0);
    const read = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    assert.equal(String(await bytesOf(rig.edge.readOutput(spec.id, command.id, read, never))), "before after");
    assert.equal((await rig.edge.inspect(spec.id, never)).generation, 2);
  });

  test("that died fails the sandbox, ends its commands, frees its compute and keeps its record", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const { command } = await start(rig.edge, spec.id, ["sleep", "1000"]);
    rig.host.get(spec.id).die();
    await until(async () => (await rig.edge.inspect(spec.id, never)).state === "failed");
    const info = await rig.edge.inspect(spec.id, never);
    assert.match(info.reason ?? "", /dead/);
    assert.equal(info.runningCommands, 0);
    const ended = await rig.edge.waitCommand(spec.id, command.id, 0, never);
    assert.equal(ended.status?.cause, "agent-lost");
    await until(async () => (await rig.edge.info(never)).promised.memoryMiB === 0);
    await assert.rejects(run(rig.edge, spec.id, ["true"]), { kind: "FailedPrecondition" });
    assert.deepEqual(
      (await rig.edge.resources(never)).filter(({ surplus }) => surplus.length > 0),
      [],
    );
    await rig.edge.destroy(spec.id, never);
    assert.equal((await rig.edge.info(never)).promised.sandboxes, 0);
  });
});

describe("time limits", () => {
  async function timed(lifetime: { idleTimeoutMs?: number; maxLifetimeMs?: number }) {
    const clock = new ManualClock();
    const rig = await Rig.open({ clock });
    const { idleTimeoutMs, maxLifetimeMs } = lifetime;
    const spec = aFakeSpec({ lifetime: { idleTimeoutMs, maxLifetimeMs } });
    await rig.edge.create(spec, never);
    const alive = async () => (await rig.edge.list({}, never)).length === 1;
    return { clock, rig, spec, alive };
  }

  test("an idle sandbox goes after its timeout, not before", async () => {
    const { clock, rig, alive } = await timed({ idleTimeoutMs: 1000 });
    await using _rig = rig;
    clock.advance(999);
    assert.ok(await alive());
    clock.advance(1);
    await until(async () => !(await alive()));
    assert.equal(rig.host.sandboxes.size, 0);
  });

  test("a running command keeps it, and the timeout counts from its end", async () => {
    const { clock, rig, spec, alive } = await timed({ idleTimeoutMs: 1000 });
    await using _rig = rig;
    const { command } = await start(rig.edge, spec.id, ["sleep", "5"]);
    clock.advance(4_999);
    assert.equal((await rig.edge.inspect(spec.id, never)).state, "ready");
    clock.advance(1);
    await until(async () => (await rig.edge.waitCommand(spec.id, command.id, 0, never)).status !== undefined);
    clock.advance(999);
    assert.ok(await alive());
    clock.advance(1);
    await until(async () => !(await alive()));
  });

  test("a reader that follows keeps it", async () => {
    const { clock, rig, spec, alive } = await timed({ idleTimeoutMs: 1000 });
    await using _rig = rig;
    const { command } = await start(rig.edge, spec.id, ["daemon", "x"], { stdin: "pipe" });
    const read = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    const reading = rig.edge.readOutput(spec.id, command.id, read, never)[Symbol.asyncIterator]();
    const first = reading.next();
    clock.advance(10_000);
    assert.ok(await alive());
    await rig.edge.destroy(spec.id, never);
    assert.equal((await first).done, true);
  });

  test("the longest lifetime holds whatever runs, and extend moves it", async () => {
    const { clock, rig, spec, alive } = await timed({ maxLifetimeMs: 1000 });
    await using _rig = rig;
    await start(rig.edge, spec.id, ["sleep", "1000"]);
    clock.advance(900);
    await rig.edge.extend(spec.id, { idleTimeoutMs: undefined, maxLifetimeMs: 3000 }, never);
    clock.advance(2_000);
    assert.ok(await alive());
    clock.advance(100);
    await until(async () => !(await alive()));
  });

  test("a failed sandbox goes when its lifetime ends", async () => {
    const { clock, rig, spec, alive } = await timed({ maxLifetimeMs: 1000 });
    await using _rig = rig;
    rig.host.get(spec.id).die();
    await until(async () => (await rig.edge.inspect(spec.id, never)).state === "failed");
    clock.advance(1000);
    await until(async () => !(await alive()));
    assert.equal(rig.host.sandboxes.size, 0);
  });
});

async function feed(
  rig: Rig,
  id: SandboxId,
  command: Parameters<Rig["edge"]["writeStdin"]>[1],
  offset: number,
  text: string,
  close = false,
) {
  const bytes = (async function* () {
    yield Buffer.from(text);
  })();
  return rig.edge.writeStdin(id, command, { offset, bytes, close }, never);
}

describe("two edges", () => {
  test("on one data directory: the second is refused, naming the first", async () => {
    await using rig = await Rig.open();
    await assert.rejects(rig.start(), { kind: "FailedPrecondition", message: new RegExp(`pid ${process.pid}`) });
  });

  test("list filters by project and labels", async () => {
    await using rig = await Rig.open();
    await rig.edge.create(aFakeSpec({ labels: { a: "1" } }), never);
    await rig.edge.create(aFakeSpec({ project: "other", labels: { a: "1", b: "2" } }), never);
    assert.equal((await rig.edge.list({ project: "other" }, never)).length, 1);
    assert.equal((await rig.edge.list({ labels: { a: "1" } }, never)).length, 2);
    assert.equal((await rig.edge.list({ labels: { b: "3" } }, never)).length, 0);
  });

  test("a closed edge refuses calls and removes its sandboxes", async () => {
    await using rig = await Rig.open();
    await rig.edge.create(aFakeSpec(), never);
    await rig.edge.close({ keepSandboxes: false });
    assert.equal(rig.host.sandboxes.size, 0);
    await assert.rejects(rig.edge.list({}, never), { kind: "Unavailable" });
    await rig.start();
  });
});
