import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { ManualClock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import { parseEdgeId } from "#core/ids.ts";
import { SILENT, TestNode } from "../test-support/test-node.ts";
import { Watcher } from "./watcher.ts";

const DEMAND = { backend: "container", cpus: 1, memoryMiB: 512 } as const;

function watch() {
  const clock = new ManualClock();
  return { clock, watcher: new Watcher({ clock, log: SILENT, pollMs: 500, answerMs: 1000, lostAfterMs: 3000 }) };
}

async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 250) {
    clock.advance(Math.min(250, left));
    // An answer takes a few turns of promises to arrive.
    for (let n = 0; n < 3; n++) await turn();
  }
}

test("a node is known after its first answer and asked again and again", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  assert.equal(watcher.sightings()[0]?.ageMs, 0);
  await pass(clock, 2000);
  assert.equal(node.calls.length, 5);
  assert.ok((watcher.sightings()[0]?.ageMs ?? 1e9) <= 500);
});

test("a node that fails is lost within seconds, and back with its next answer", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  node.before = () => {
    throw new SandboxError("Unavailable", "the connection broke");
  };
  await pass(clock, 2500);
  assert.equal(watcher.sightings()[0]?.lost, false);
  await pass(clock, 1000);
  assert.deepEqual([watcher.sightings()[0]?.lost, watcher.candidates()[0]?.lost], [true, true]);
  assert.equal(watcher.sightings()[0]?.reason, "the connection broke");
  node.before = () => undefined;
  await pass(clock, 750);
  assert.equal(watcher.sightings()[0]?.lost, false);
  assert.equal(watcher.sightings()[0]?.reason, undefined);
});

test("a node that never answers, signal or not, is lost too and asked on", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  node.before = () => new Promise<void>(() => undefined);
  await pass(clock, 6000);
  assert.equal(watcher.sightings()[0]?.lost, true);
  assert.ok(node.calls.length >= 4, `${node.calls.length}`);
});

test("one silent node does not delay the view of another", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const [slow, quick] = [new TestNode("slow"), new TestNode("quick")];
  slow.before = () => new Promise<void>(() => undefined);
  void watcher.add(slow.edge, slow);
  await watcher.add(quick.edge, quick);
  await pass(clock, 4000);
  assert.deepEqual(
    watcher.sightings().map(({ info, lost }) => [info.edge, lost]),
    [["quick", false]],
  );
});

test("placements count until an answer that was asked for after them", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  watcher.placed(node.edge, DEMAND);
  const { promise, resolve } = Promise.withResolvers<void>();
  node.before = () => promise;
  await pass(clock, 500);
  watcher.placed(node.edge, DEMAND);
  assert.equal(watcher.candidates()[0]?.recent.sandboxes, 2);
  resolve();
  await pass(clock, 250);
  assert.deepEqual(watcher.candidates()[0]?.recent, { sandboxes: 1, cpus: 1, memoryMiB: 512 });
});

test("a node that calls itself otherwise is not believed", async () => {
  const { watcher } = watch();
  using _ = watcher;
  await watcher.add(parseEdgeId("a"), new TestNode("b"));
  assert.deepEqual(watcher.sightings(), []);
});

test("unknown nodes are NotFound, removed ones are asked no more", async () => {
  const { clock, watcher } = watch();
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  assert.equal(watcher.node(node.edge), node);
  assert.equal(watcher.nodes().length, 1);
  watcher[Symbol.dispose]();
  const { length } = node.calls;
  await pass(clock, 3000);
  assert.equal(node.calls.length, length);
  assert.throws(() => watcher.node(node.edge), { kind: "NotFound" });
});

test("a process that stood still blames no node for what it has not read", async () => {
  const { clock, watcher } = watch();
  using _ = watcher;
  const node = new TestNode("a");
  await watcher.add(node.edge, node);
  await pass(clock, 1000);
  for (let round = 0; round < 3; round++) {
    clock.stall(60_000);
    assert.equal(watcher.candidates()[0]?.lost, false);
    assert.ok((watcher.sightings()[0]?.ageMs ?? 0) >= 60_000);
    await pass(clock, 1000);
    assert.equal(watcher.candidates()[0]?.lost, false);
  }
  // One that is silent is lost all the same.
  node.before = () => new Promise<void>(() => undefined);
  clock.stall(60_000);
  await pass(clock, 4000);
  assert.equal(watcher.candidates()[0]?.lost, true);
});
