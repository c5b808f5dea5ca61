import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { FakeSandbox } from "#backends/fake/host.ts";
import { pattern } from "#backends/fake/programs.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { canonical } from "#core/pack.ts";
import { SMALL_BYTES } from "#edge/output/log.ts";
import { bytesOf, listed, never, Rig, run, start, until } from "./test-support/rig.ts";

const all = { stream: "stdout", offset: 0, follow: true, hold: false } as const;

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

for (const [how, again] of [
  ["a crash", (rig: Rig) => rig.crash()],
  ["a proper restart", (rig: Rig) => rig.restart()],
] as const) {
  describe(`after ${how} of the edge`, () => {
    test("a live sandbox is adopted with its generation, place and limits", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const before = await rig.edge.extend(spec.id, { idleTimeoutMs: 9_000, maxLifetimeMs: undefined }, never);
      const { promised } = await rig.edge.info(never);
      await again(rig);
      const after = await rig.edge.inspect(spec.id, never);
      assert.deepEqual(
        { ...after, lastActivityAtMs: 0, spec: after.spec.lifetime },
        { ...before, lastActivityAtMs: 0, spec: before.spec.lifetime },
      );
      assert.deepEqual((await rig.edge.info(never)).promised, promised);
      assert.equal((await run(rig.edge, spec.id, ["true"])).command.status?.code, 0);
      assert.equal((await rig.edge.create(spec, never)).generation, after.generation);
      await rig.edge.create(aFakeSpec(), never);
      assert.deepEqual(
        [...rig.host.sandboxes.values()].map(({ slot }) => slot),
        [0, 1],
      );
    });

    test("a running command goes on, and its output is whole", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const { command } = await start(rig.edge, spec.id, ["cat"], { stdin: "pipe", idempotencyKey: "k" });
      const write = (offset: number, text: string, close: boolean) =>
        rig.edge.writeStdin(spec.id, command.id, { offset, bytes: once(text), close }, never);
      await write(0, "before ", false);
      await again(rig);
      assert.equal((await rig.edge.inspect(spec.id, never)).runningCommands, 1);
      await write(7, "after", true);
      const ended = await rig.edge.waitCommand(spec.id, command.id, 20_000, never);
      assert.deepEqual([ended.status?.code, ended.pid], [0, command.pid]);
      assert.equal(String(await bytesOf(rig.edge.readOutput(spec.id, command.id, all, never))), "before after");
      assert.equal(
        (await start(rig.edge, spec.id, ["cat"], { stdin: "pipe", idempotencyKey: "k" })).command.id,
        command.id,
      );
    });

    test("a command in the middle of megabytes of output loses and doubles nothing", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const total = 2_000_000;
      const { command } = await start(rig.edge, spec.id, ["yes", String(total), "10007"]);
      await until(async () => (await rig.edge.waitCommand(spec.id, command.id, 0, never)).stdout.seen > 50_000);
      await again(rig);
      await rig.edge.waitCommand(spec.id, command.id, 20_000, never);
      const bytes = await bytesOf(rig.edge.readOutput(spec.id, command.id, all, never));
      assert.ok(bytes.equals(pattern(0, total)));
    });

    test("ended commands keep their status and output, small and large", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const sizes = [0, 10, SMALL_BYTES, SMALL_BYTES + 1, 300_000];
      const before = await Promise.all(sizes.map((size) => run(rig.edge, spec.id, ["yes", String(size)])));
      await again(rig);
      assert.deepEqual(
        (await listed(rig.edge, spec.id)).map(({ id }) => id),
        before.map(({ command }) => command.id),
      );
      for (const [index, { command }] of before.entries()) {
        const known = await rig.edge.waitCommand(spec.id, command.id, 0, never);
        const { stdout, stderr } = command;
        const settled = { ...command, stdout: { ...stdout, ended: true }, stderr: { ...stderr, ended: true } };
        assert.equal(canonical(known), canonical(settled));
        const bytes = await bytesOf(rig.edge.readOutput(spec.id, command.id, all, never));
        assert.ok(bytes.equals(pattern(0, sizes[index] ?? 0)), `${sizes[index]}`);
      }
      assert.equal(rig.host.get(spec.id).tasks.size, 0);
    });

    test("a sandbox that died meanwhile is failed, and its command lost", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const { command } = await start(rig.edge, spec.id, ["sleep", "1000"]);
      const restarted = again(rig);
      rig.host.get(spec.id).die();
      await restarted;
      await until(async () => (await rig.edge.inspect(spec.id, never)).state === "failed");
      assert.equal((await rig.edge.waitCommand(spec.id, command.id, 0, never)).status?.cause, "agent-lost");
      await rig.edge.destroy(spec.id, never);
      assert.equal(rig.host.sandboxes.size, 0);
      assert.deepEqual((await rig.edge.info(never)).promised, { cpus: 0, memoryMiB: 0, sandboxes: 0 });
    });

    test("what no record names is removed, and what other edges own is left", async () => {
      await using rig = await Rig.open();
      const stray = aFakeSpec();
      const foreign = aFakeSpec({ id: newSandboxId(parseEdgeId("other")) });
      for (const spec of [stray, foreign]) rig.host.sandboxes.set(spec.id, new FakeSandbox(spec, 7));
      mkdirSync(join(rig.dataDir, "output", stray.id), { recursive: true });
      await again(rig);
      assert.deepEqual([...rig.host.sandboxes.keys()], [foreign.id]);
      assert.equal(existsSync(join(rig.dataDir, "output", stray.id)), false);
      rig.host.sandboxes.delete(foreign.id);
    });

    test("a background child's late output is kept", async () => {
      await using rig = await Rig.open();
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      const { command } = await start(rig.edge, spec.id, ["daemon", "late"], { stdin: "pipe" });
      const ended = await rig.edge.waitCommand(spec.id, command.id, 20_000, never);
      assert.deepEqual([ended.status?.code, ended.stdout.ended], [0, false]);
      await again(rig);
      rig.host.get(spec.id).tasks.forEach((task) => void task.closeStdin());
      assert.equal(String(await bytesOf(rig.edge.readOutput(spec.id, command.id, all, never))), "late");
      await until(async () => (await rig.edge.waitCommand(spec.id, command.id, 0, never)).stdout.ended);
      assert.equal((await rig.edge.waitCommand(spec.id, command.id, 0, never)).status?.code, 0);
    });
  });
}

describe("a crash", () => {
  for (const moment of ["create", "created", "connect"] as const) {
    test(`in the middle of a create, at ${moment}, leaves nothing`, async () => {
      let held = true;
      const script = (now: string) => (now === moment && held ? new Promise<void>(() => {}) : undefined);
      await using rig = await Rig.open({ script });
      const spec = aFakeSpec();
      const creating = assert.rejects(rig.edge.create(spec, never));
      await until(() => moment === "create" || rig.host.sandboxes.size === 1);
      held = false;
      await rig.crash();
      await creating;
      assert.equal((await rig.edge.list({}, never)).length, 0);
      assert.equal(rig.host.sandboxes.size, 0);
      assert.equal((await rig.edge.create(spec, never)).state, "ready");
    });
  }

  test("in the middle of a destroy is finished by the next edge", async () => {
    let held = true;
    const script = (now: string) => (now === "destroy" && held ? new Promise<void>(() => {}) : undefined);
    await using rig = await Rig.open({ script });
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const controller = new AbortController();
    const destroying = assert.rejects(rig.edge.destroy(spec.id, controller.signal));
    await until(async () => (await rig.edge.inspect(spec.id, never)).state === "destroying");
    controller.abort();
    await destroying;
    held = false;
    const crashed = rig.crash();
    await until(() => rig.host.sandboxes.size === 0);
    void crashed;
    assert.equal((await rig.edge.list({}, never)).length, 0);
  });

  test("between the record of a command and its start leaves no command behind", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    // The call is made in this turn: the record is written, the start is under way, the answer is not there.
    const starting = start(rig.edge, spec.id, ["sleep", "1000"], { idempotencyKey: "k" }).catch(() => undefined);
    rig.host.get(spec.id).tasks.clear();
    await rig.crash();
    await starting;
    const known = await listed(rig.edge, spec.id);
    assert.deepEqual(
      known.map(({ status }) => status),
      known.map(() => undefined),
    );
    const again = await start(rig.edge, spec.id, ["sleep", "1000"], { idempotencyKey: "k" });
    assert.equal((await listed(rig.edge, spec.id)).length, 1);
    assert.equal(again.command.status, undefined);
  });

  test("that leaves tasks nobody recorded ends them", async () => {
    await using rig = await Rig.open();
    const spec = aFakeSpec();
    await rig.edge.create(spec, never);
    const write = { path: Buffer.from("/f"), user: undefined, mode: 0o644, parents: false };
    const endless = (async function* () {
      yield Buffer.from("x");
      await new Promise(() => {});
    })();
    void rig.edge.writeFile(spec.id, write, endless, never).catch(() => undefined);
    await until(() => rig.host.get(spec.id).tasks.size === 1);
    await rig.crash();
    assert.equal(rig.host.get(spec.id).tasks.size, 0);
    await assert.rejects(rig.edge.stat(spec.id, write, never), { kind: "NotFound" });
  });
});
