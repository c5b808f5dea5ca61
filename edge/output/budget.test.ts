import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { aFakeSpec } from "#backends/fake/spec.ts";
import type { CommandInfo } from "#core/sandbox.ts";
import { ALWAYS_KEPT_BYTES, OutputBudget } from "#edge/output/budget.ts";
import { bytesOf, listed, never, Rig, run, start, until } from "../test-support/rig.ts";

const BUDGET = 1_000_000;

async function open() {
  const rig = await Rig.open({ config: { outputBudgetBytes: BUDGET } });
  const spec = aFakeSpec();
  await rig.edge.create(spec, never);
  const onDisk = () => {
    const folder = join(rig.dataDir, "output", spec.id);
    return readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  };
  return { rig, id: spec.id, onDisk };
}

function keptOf({ stdout, stderr }: CommandInfo): number {
  return stdout.kept + stderr.kept;
}

test("makes room as often as it takes, and refuses when there is none", () => {
  const parts = [300, 200, 100];
  const budget = new OutputBudget(1_000, () => parts.shift() ?? 0);
  assert.ok(budget.grow(900));
  assert.ok(budget.grow(600));
  assert.deepEqual([budget.usedBytes, parts], [1_000, [100]]);
  assert.equal(budget.grow(200), false);
  assert.deepEqual([budget.usedBytes, parts], [900, []]);
  budget.take(300);
  budget.give(1_100);
  assert.equal(budget.usedBytes, 100);
});

describe("the outputs of a sandbox together", () => {
  test("keep no more than its budget: the oldest that have ended go first, and are counted", async () => {
    const { rig, id, onDisk } = await open();
    await using _rig = rig;
    for (let index = 0; index < 8; index += 1) await run(rig.edge, id, ["yes", "300000"]);
    const all = await listed(rig.edge, id);
    assert.deepEqual(all.map(keptOf), [0, 0, 0, 0, 0, 300_000, 300_000, 300_000]);
    for (const { stdout } of all) {
      assert.deepEqual([stdout.seen, stdout.truncated, stdout.ended], [300_000, stdout.kept === 0, true]);
    }
    assert.ok(onDisk() <= BUDGET + 1_000);
    const read = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    const [first, , , , , sixth] = all;
    assert.ok(first !== undefined && sixth !== undefined);
    assert.equal((await bytesOf(rig.edge.readOutput(id, first.id, read, never))).length, 0);
    assert.equal((await bytesOf(rig.edge.readOutput(id, sixth.id, read, never))).length, 300_000);
  });

  test("of commands that run stop growing at the budget, and keep their beginning and their end", async () => {
    const { rig, id, onDisk } = await open();
    await using _rig = rig;
    const writers = [];
    for (let index = 0; index < 6; index += 1) {
      writers.push((await start(rig.edge, id, ["yes", "500000", "5000"], { stdin: "none" })).command);
    }
    const infos = await Promise.all(writers.map((command) => rig.edge.waitCommand(id, command.id, 20_000, never)));
    const kept = infos.reduce((sum, info) => sum + keptOf(info), 0);
    assert.ok(kept <= BUDGET + 6 * ALWAYS_KEPT_BYTES, `${kept} bytes`);
    for (const info of infos) assert.equal(info.stdout.seen, 500_000);
    assert.ok(onDisk() <= kept + 1_000);
  });

  test("little output counts as well, and a restart of the edge knows what there is", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    for (let index = 0; index < 40; index += 1) await run(rig.edge, id, ["yes", "15000"]);
    await rig.restart();
    for (let index = 0; index < 40; index += 1) await run(rig.edge, id, ["yes", "15000"]);
    const all = await listed(rig.edge, id);
    const kept = all.reduce((sum, info) => sum + keptOf(info), 0);
    assert.ok(kept <= BUDGET && kept > BUDGET - 15_000, `${kept} bytes`);
    assert.deepEqual(
      all.map((info) => keptOf(info) > 0),
      all.map((_, index) => index >= all.length - kept / 15_000),
    );
  });

  test("a reader that has an output open reads it to its end though it is dropped meanwhile", async () => {
    const { rig, id } = await open();
    await using _rig = rig;
    const { command } = await run(rig.edge, id, ["yes", "600000"]);
    const read = { stream: "stdout", offset: 0, follow: true, hold: false } as const;
    const reading = rig.edge.readOutput(id, command.id, read, never)[Symbol.asyncIterator]();
    let seen = (await reading.next()).value?.bytes.length ?? 0;
    await run(rig.edge, id, ["yes", "600000"]);
    await until(async () => keptOf(await rig.edge.waitCommand(id, command.id, 0, never)) === 0);
    for (let next = await reading.next(); next.done !== true; next = await reading.next())
      seen += next.value.bytes.length;
    assert.equal(seen, 600_000);
  });
});

test("what was asked of commands is bounded like their number: the oldest that have ended go, after a restart too", async () => {
  await using rig = await Rig.open();
  const spec = aFakeSpec();
  await rig.edge.create(spec, never);
  const env = { LARGE: "x".repeat(2_000_000) };
  for (let index = 0; index < 100; index += 1) await run(rig.edge, spec.id, ["yes", "1"], { env });
  assert.equal((await listed(rig.edge, spec.id)).length, 100);
  await rig.crash();
  let last: string | undefined;
  for (let index = 0; index < 40; index += 1) {
    last = (await run(rig.edge, spec.id, ["yes", "1"], { env })).command.id;
  }
  const kept = await listed(rig.edge, spec.id);
  assert.ok(kept.length >= 90 && kept.length < 140, `${kept.length} commands`);
  assert.equal(kept.at(-1)?.id, last);
});
