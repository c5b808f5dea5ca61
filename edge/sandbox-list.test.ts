import assert from "node:assert/strict";
import { test } from "node:test";
import { aFakeSpec } from "#backends/fake/spec.ts";
import type { SandboxFilter } from "#core/node.ts";
import { never, Rig } from "./test-support/rig.ts";

async function withSandboxes(count: number, env: Readonly<Record<string, string>> = {}) {
  const rig = await Rig.open();
  for (let index = 0; index < count; index += 1) {
    await rig.edge.create(aFakeSpec({ env, labels: { odd: String(index % 2) } }), never);
  }
  const ids = async (filter: SandboxFilter) => (await rig.edge.list(filter, never)).map(({ spec }) => spec.id);
  return { rig, ids };
}

test("sandboxes are listed in the order of their ids, so many behind a given one", async () => {
  const { rig, ids } = await withSandboxes(9);
  await using _rig = rig;
  const all = await ids({});
  assert.deepEqual(all, [...all].sort());
  assert.deepEqual(await ids({ limit: 4 }), all.slice(0, 4));
  const [, , third] = all;
  assert.ok(third !== undefined);
  assert.deepEqual(await ids({ after: third, limit: 4 }), all.slice(3, 7));
  const odd = await ids({ labels: { odd: "1" } });
  assert.deepEqual([odd.length, (await ids({ labels: { odd: "1" }, limit: 2 })).length], [4, 2]);
  const last = all.at(-1);
  assert.ok(last !== undefined);
  assert.deepEqual(await ids({ after: last }), []);
});

test("an answer of sandboxes with long environments fits a message, and the rest comes with the next", async () => {
  const { rig, ids } = await withSandboxes(8, { LONG: "x".repeat(400_000) });
  await using _rig = rig;
  const all = [];
  const sizes = [];
  for (let found = await ids({}); found.length > 0; found = await ids({ after: found.at(-1) ?? assert.fail() })) {
    all.push(...found);
    sizes.push(found.length);
  }
  assert.equal(new Set(all).size, 8);
  assert.ok(Math.max(...sizes) < 8, String(sizes));
});

test("one sandbox that alone is more than enough is listed all the same", async () => {
  const { rig, ids } = await withSandboxes(2, { A: "x".repeat(900_000), B: "y".repeat(900_000) });
  await using _rig = rig;
  assert.equal((await ids({})).length, 1);
});
