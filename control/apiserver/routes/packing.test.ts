import assert from "node:assert/strict";
import { test } from "node:test";
import { rig } from "../../test-support/rig.ts";

test("a pack reaches the node with its options, and its artifact the catalogue", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const json = { name: "mine:v1", exclude: ["x"], keep: ["history"], labels: { team: "a" }, consistent: false };
  const packed = await api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
  assert.equal(packed.status, 201, JSON.stringify(packed.json));
  assert.ok(api.node.calls.includes("packDiff x history false"), api.node.calls.join());
  const found = await api.call("GET", "/v1/artifacts/mine%3Av1");
  assert.deepEqual([found.json.kind, found.json.provenance], ["snapshot", `packed from ${id}`]);
  assert.deepEqual(found.json.labels, json.labels);
  const made = await api.call("POST", "/v1/sandboxes", { json: { base: "mine:v1" } });
  assert.equal(made.status, 201);
});

test("a key makes one snapshot, whoever asks at once or later; another request under it is refused", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const pack = (name: string) =>
    api.call("POST", `/v1/sandboxes/${id}/pack`, { json: { name }, headers: { "idempotency-key": "k" } });
  const replies = [...(await Promise.all([pack("a"), pack("a")])), await pack("a")];
  assert.equal(new Set(replies.map(({ json }) => JSON.stringify(json))).size, 1);
  assert.equal(api.node.calls.filter((call) => call.startsWith("packDiff")).length, 1);
  assert.equal((await pack("b")).status, 400);
});

test("a pack that fails is not remembered, and names nothing", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const headers = { "idempotency-key": "k" };
  api.node.before = (call) => {
    if (call === "packDiff") throw new Error("broken");
  };
  const pack = () => api.call("POST", `/v1/sandboxes/${id}/pack`, { json: { name: "a" }, headers });
  assert.equal((await pack()).status, 500);
  assert.equal((await api.call("GET", "/v1/artifacts/a")).status, 404);
  api.node.before = () => undefined;
  assert.equal((await pack()).status, 201);
});

test("what is wrong with a pack is told by field", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const wrong = [
    [{}, "name"],
    [{ name: "No" }, "name"],
    [{ name: "a", exclude: [""] }, "exclude"],
    [{ name: "a", exclude: "x" }, "exclude"],
    [{ name: "a", keep: ["all"] }, "keep"],
    [{ name: "a", consistent: 1 }, "consistent"],
    [{ name: "a", more: 1 }, "more"],
  ] as const;
  for (const [json, field] of wrong) {
    const { status, json: reply } = await api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
    assert.equal(status, 400, field);
    assert.match(JSON.stringify(reply), new RegExp(field));
  }
  assert.equal((await api.call("POST", "/v1/sandboxes/sn1-nothing/pack", { json: { name: "a" } })).status, 404);
});

test("a fork answers for each by its index, and forks show their parent", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const { status, json } = await api.call("POST", `/v1/sandboxes/${id}/fork`, {
    json: { count: 3, labels: { a: "b" } },
  });
  assert.equal(status, 201, JSON.stringify(json));
  const { forks } = json;
  assert.deepEqual(
    forks.map((fork) =>
      "sandbox" in fork ? [fork.index, fork.sandbox.parent, fork.sandbox.labels] : [fork.index, fork.error.kind],
    ),
    [
      [0, id, { a: "b" }],
      [1, id, { a: "b" }],
      [2, "NodeFull"],
    ],
  );
});

test("a key gives forks the same ids, and each sandbox and key others", async () => {
  await using api = await rig();
  const [first, second] = [await api.sandbox(), await api.sandbox()];
  const ids = async (id: string, key: string) => {
    const headers = { "idempotency-key": key };
    const { json } = await api.call("POST", `/v1/sandboxes/${id}/fork`, { json: { count: 3 }, headers });
    return json.forks.flatMap((fork) => ("sandbox" in fork ? [fork.sandbox.id] : [])).join();
  };
  assert.equal(await ids(first, "k"), await ids(first, "k"));
  assert.equal(new Set([await ids(first, "k"), await ids(first, "l"), await ids(second, "k")]).size, 3);
  for (const count of [0, 257, "2"]) {
    assert.equal((await api.call("POST", `/v1/sandboxes/${first}/fork`, { json: { count } })).status, 400);
  }
});
