import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { pattern } from "#backends/fake/programs.ts";
import { aFakeSpec } from "#backends/fake/spec.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { aCommand } from "#core/suites/node-suite.ts";
import { listed, never, Rig, run, start, until } from "../test-support/rig.ts";

async function open(options: Parameters<typeof Rig.open>[0] = {}): Promise<{ rig: Rig; id: SandboxId }> {
  const rig = await Rig.open(options);
  const { id } = (await rig.edge.create(aFakeSpec({ env: { A: "sandbox", B: "sandbox" } }), never)).spec;
  return { rig, id };
}

describe("the end of a command", () => {
  test("by the memory limit is told from a kill by anybody else", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    assert.equal((await run(rig.edge, id, ["hog"])).command.status?.cause, "out-of-memory");
    assert.equal((await run(rig.edge, id, ["die", "SIGKILL"])).command.status?.cause, "signaled");
    assert.equal((await run(rig.edge, id, ["hog"])).command.status?.cause, "out-of-memory");
    await rig.crash();
    assert.equal((await run(rig.edge, id, ["die", "SIGKILL"])).command.status?.cause, "signaled");
    assert.equal((await run(rig.edge, id, ["hog"])).command.status?.cause, "out-of-memory");
  });

  test("by a caller's SIGKILL is a signal, whatever the memory did", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const { command } = await start(rig.edge, id, ["sleep", "1000"]);
    rig.host.get(id).oomKills += 1;
    await rig.edge.signalCommand(id, command.id, "SIGKILL", never);
    const { status } = await rig.edge.waitCommand(id, command.id, 20_000, never);
    assert.deepEqual([status?.cause, status?.signal], ["signaled", "SIGKILL"]);
  });

  test("is known even when the memory's account cannot be read", async () => {
    const script = (moment: string) => {
      if (moment === "usage") throw new SandboxError("Internal", "no account");
    };
    const { rig, id } = await open({ script });
    await using _rig = rig;
    assert.equal((await run(rig.edge, id, ["hog"])).command.status?.cause, "signaled");
    assert.equal(rig.warnings.length, 1);
  });

  test("does not wait for a child that holds stdout", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const { command } = await run(rig.edge, id, ["daemon", "late"], { stdin: "pipe" });
    assert.deepEqual([command.status?.code, command.stdout.ended], [0, false]);
    assert.equal((await rig.edge.inspect(id, never)).runningCommands, 0);
  });
});

describe("a command", () => {
  test("runs with the image's, the sandbox's and its own environment, each over the one before", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const { output } = await run(rig.edge, id, ["env"], { env: { B: "command" } });
    assert.equal(Buffer.from(output?.stdout ?? []).toString(), "PATH=/bin\nA=sandbox\nB=command\n");
  });

  test("returns no more inline than asked for", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const wait = { waitMs: 20_000, inlineBytes: 100 };
    const { output, command } = await rig.edge.startCommand(id, aCommand(["yes", "200000"]), wait, never);
    assert.deepEqual(new Uint8Array(output?.stdout ?? []), pattern(0, 100));
    assert.equal(command.stdout.seen, 200_000);
  });

  test("makes no file for little output, one for much, none for a stream it does not use", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    await run(rig.edge, id, ["yes", "16384"]);
    const { command } = await run(rig.edge, id, ["yes", "16385"]);
    assert.deepEqual(readdirSync(join(rig.dataDir, "output", id)), [`${command.id}.stdout`]);
  });

  test("that its reader holds stalls instead of losing what was not read", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const total = 3_000_000;
    const { command } = await start(rig.edge, id, ["yes", String(total)], { outputCapBytes: 600_000 });
    const read = { stream: "stdout", offset: 0, follow: true, hold: true } as const;
    let next = 0;
    for await (const { offset, bytes } of rig.edge.readOutput(id, command.id, read, never)) {
      assert.equal(offset, next);
      assert.ok(Buffer.from(pattern(offset, bytes.length)).equals(bytes));
      next += bytes.length;
      await new Promise(setImmediate);
    }
    assert.equal(next, total);
  });

  test("has any number of readers at any offset", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const { command } = await start(rig.edge, id, ["yes", "500000", "1000"]);
    const offsets = [0, 1, 250_000, 499_999, 500_000, 700_000];
    const lengths = await Promise.all(
      offsets.map(async (offset) => {
        let length = 0;
        const read = { stream: "stdout", offset, follow: true, hold: false } as const;
        for await (const { bytes } of rig.edge.readOutput(id, command.id, read, never)) length += bytes.length;
        return length;
      }),
    );
    assert.deepEqual(lengths, [500_000, 499_999, 250_000, 1, 0, 0]);
  });

  test("is forgotten by the agent when its end is recorded", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    await Promise.all(Array.from({ length: 100 }, (_, index) => run(rig.edge, id, ["echo", String(index)])));
    await until(() => rig.host.get(id).tasks.size === 0);
    assert.equal((await listed(rig.edge, id)).length, 100);
  });
});

test("one short command costs the edge less than half a millisecond", async () => {
  const { rig, id } = await open();
  await using _rig = rig;
  const count = 500;
  for (let index = 0; index < 50; index += 1) await run(rig.edge, id, ["true"]);
  const costs: number[] = [];
  for (let round = 0; round < 3; round += 1) {
    const before = process.cpuUsage();
    for (let index = 0; index < count; index += 1) await run(rig.edge, id, ["true"]);
    const { user, system } = process.cpuUsage(before);
    costs.push((user + system) / count);
  }
  assert.ok(Math.min(...costs) < 500, `${costs.map(Math.round)} microseconds of processor time`);
});

test("one create and destroy cost the edge less than a millisecond", async () => {
  const { rig } = await open();
  await using _rig = rig;
  const costs: number[] = [];
  for (let round = 0; round < 3; round += 1) {
    const before = process.cpuUsage();
    for (let index = 0; index < 200; index += 1) {
      const spec = aFakeSpec();
      await rig.edge.create(spec, never);
      await rig.edge.destroy(spec.id, never);
    }
    const { user, system } = process.cpuUsage(before);
    costs.push((user + system) / 200);
  }
  assert.ok(Math.min(...costs) < 1000, `${costs.map(Math.round)} microseconds of processor time`);
});
