import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES, type SandboxSpec } from "#core/sandbox.ts";
import { IdempotencyKeys, requestHash, stateKey } from "./idempotency.ts";
import { MemoryState } from "./state/memory.ts";

const SPEC: SandboxSpec = {
  id: newSandboxId(parseEdgeId("n1")),
  project: "p",
  backend: "container",
  layers: [],
  config: { env: {}, user: undefined, workdir: undefined },
  hostname: "h",
  env: {},
  user: "root",
  workdir: "/",
  resources: DEFAULT_RESOURCES,
  rlimits: {},
  lifetime: { idleTimeoutMs: undefined, maxLifetimeMs: undefined },
  labels: {},
  origin: { base: "b", workspace: undefined, toolkits: [] },
};

function fresh() {
  const clock = new ManualClock();
  const state = new MemoryState();
  return { clock, state, keys: new IdempotencyKeys(state, clock) };
}

test("a spec that went through the store equals the one that was claimed", async () => {
  const { keys } = fresh();
  await keys.claim("idempotency/k", "h", SPEC, undefined);
  assert.deepStrictEqual((await keys.find("idempotency/k", "h"))?.record.spec, SPEC);
});

test("of concurrent claims one wins, and a claim over another's needs its revision", async () => {
  const { keys } = fresh();
  const claims = await Promise.all(Array.from({ length: 10 }, () => keys.claim("idempotency/k", "h", SPEC, undefined)));
  const [first, ...others] = claims.filter((claim) => claim !== undefined);
  assert.ok(first !== undefined && others.length === 0);
  const second = await keys.claim("idempotency/k", "h", SPEC, first);
  assert.ok(second !== undefined);
  assert.equal(await keys.claim("idempotency/k", "h", SPEC, first), undefined);
  await keys.release("idempotency/k", first);
  assert.ok((await keys.find("idempotency/k", "h")) !== undefined);
  await keys.settle("idempotency/k", second);
  const settled = await keys.find("idempotency/k", "h");
  assert.deepEqual([settled?.record.id, settled?.record.spec], [SPEC.id, undefined]);
});

test("another request under the key is refused until the key has expired", async () => {
  const { clock, keys } = fresh();
  await keys.claim("idempotency/k", "h", SPEC, undefined);
  await assert.rejects(keys.find("idempotency/k", "other"), { kind: "InvalidArgument" });
  clock.advance(3_600_000);
  assert.equal(await keys.find("idempotency/k", "other"), undefined);
});

test("a sweep removes exactly what has expired, over many pages", async () => {
  const { clock, state, keys } = fresh();
  for (let n = 0; n < 1100; n++) await keys.claim(`idempotency/p/${n}`, "h", SPEC, undefined);
  await state.put("token/x", "{}", "any");
  clock.advance(1_800_000);
  await keys.claim("idempotency/p/late", "h", SPEC, undefined);
  clock.advance(1_800_000);
  await keys.sweep();
  assert.deepEqual(
    (await state.list("")).map(({ key }) => key),
    ["idempotency/p/late", "token/x"],
  );
});

test("requests are the same whatever the order of their keys; keys of projects never meet", () => {
  assert.equal(requestHash({ a: 1, b: { c: 2, d: [1, 2] } }), requestHash({ b: { d: [1, 2], c: 2 }, a: 1 }));
  assert.notEqual(requestHash({ a: [1, 2] }), requestHash({ a: [2, 1] }));
  assert.notEqual(stateKey("a", "b/c"), stateKey("a/b", "c"));
  assert.notEqual(stateKey("a", "k"), stateKey("b", "k"));
});
