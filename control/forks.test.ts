import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { edgeOf, type SandboxId } from "#core/ids.ts";
import { type Rig, rig } from "./test-support/rig.ts";
import { TestNode } from "./test-support/test-node.ts";

/** A rig with further nodes that take forks. Its own node never has room for the last one. */
async function withNodes(...names: readonly string[]) {
  const api = await rig();
  const others = names.map((name) => new TestNode(name));
  for (const node of others) await api.control.watcher.add(node.edge, node, "forks");
  return { api, others, id: await api.sandbox() };
}

async function fork(api: Rig, id: string, json: object, key?: string) {
  const headers: Record<string, string> = key === undefined ? {} : { "idempotency-key": key };
  const reply = await api.call("POST", `/v1/sandboxes/${id}/fork`, { json, headers });
  assert.equal(reply.status, 201, JSON.stringify(reply.json));
  return reply.json.forks.map((made) => ("sandbox" in made ? made.sandbox : made.error));
}

const where = (made: Awaited<ReturnType<typeof fork>>) => made.map((one) => ("edge" in one ? one.edge : one.kind));

test("forks that a node has no room for go to another one, of layers of that instant, as its children", async () => {
  const { api, others, id } = await withNodes("n2");
  await using _ = api;
  const made = await fork(api, id, { count: 3, labels: { a: "b" } });
  assert.deepEqual(where(made), ["n1", "n1", "n2"]);
  assert.ok(api.node.calls.includes("fork 3 if-full"), api.node.calls.join());
  const [info] = [...(others[0]?.sandboxes.values() ?? [])];
  const { layers, labels, parent, hostname } = info?.spec ?? {};
  assert.deepEqual(
    { layers, labels, parent, hostname },
    { layers: [`sha256:${"e".repeat(64)}`], labels: { a: "b" }, parent: id, hostname: info?.spec.id },
  );
  const listed = (await api.call("GET", "/v1/sandboxes")).json.sandboxes.filter((one) => one.parent === id);
  assert.equal(listed.length, 3);
  assert.equal((await api.call("DELETE", `/v1/sandboxes/${info?.spec.id}`)).status, 204);
  assert.equal(others[0]?.sandboxes.size, 0);
});

test("nodes are chosen as asked: the same alone, or others alone", async () => {
  const { api, others, id } = await withNodes("n2");
  await using _ = api;
  assert.deepEqual(where(await fork(api, id, { count: 2, nodes: "same" })), ["n1", "NodeFull"]);
  assert.ok(api.node.calls.includes("fork 2 never"), api.node.calls.join());
  assert.deepEqual(where(await fork(api, id, { count: 2, nodes: "other" })), ["n2", "n2"]);
  assert.ok(api.node.calls.includes("fork 0 always"), api.node.calls.join());
  const [child] = others[0]?.sandboxes.keys() ?? [];
  assert.ok(child !== undefined);
  // Of a sandbox there, this server's own node is another one.
  assert.deepEqual(where(await fork(api, child, { count: 1, nodes: "other" })), ["n1"]);
  assert.equal((await api.call("POST", `/v1/sandboxes/${id}/fork`, { json: { count: 1, nodes: "all" } })).status, 400);
});

test("without other nodes nothing is packed: full is full, and asking for others is refused", async () => {
  const { api, id } = await withNodes();
  await using _ = api;
  assert.deepEqual(where(await fork(api, id, { count: 2 })), ["n1", "NodeFull"]);
  assert.ok(api.node.calls.includes("fork 2 never"), api.node.calls.join());
  const json = { count: 1, nodes: "other" };
  const refused = await api.call("POST", `/v1/sandboxes/${id}/fork`, { json });
  assert.deepEqual([refused.status, refused.json.error.kind], [412, "FailedPrecondition"]);
});

test("a snapshot that fails is told to those that needed it, and the others stand", async () => {
  const { api, id } = await withNodes("n2");
  await using _ = api;
  api.node.snapshot = { error: { kind: "Unavailable", message: "the store does not answer" } };
  assert.deepEqual(where(await fork(api, id, { count: 3 })), ["n1", "n1", "Unavailable"]);
  assert.deepEqual(where(await fork(api, id, { count: 2, nodes: "other" })), ["Unavailable", "Unavailable"]);
});

test("a full node sends on to the next, what else fails there does not; one without a key leaves nothing", async () => {
  const { api, others, id } = await withNodes("n2", "n3");
  await using _ = api;
  const [full, broken] = others;
  assert.ok(full !== undefined && broken !== undefined);
  const refuse = (kind: "NodeFull" | "Unavailable") => (call: string) => {
    if (call === "create") throw new SandboxError(kind, "no");
  };
  full.before = refuse("NodeFull");
  assert.deepEqual(where(await fork(api, id, { count: 4, nodes: "other" })), ["n3", "n3", "n3", "n3"]);
  broken.before = refuse("NodeFull");
  assert.deepEqual(where(await fork(api, id, { count: 2 })), ["n1", "NodeFull"]);
  full.before = broken.before = refuse("Unavailable");
  assert.deepEqual(where(await fork(api, id, { count: 1, nodes: "other" })), ["Unavailable"]);
  const asked = [...full.calls, ...broken.calls].filter((call) => call.startsWith("destroy"));
  assert.equal(asked.length, 1);
});

test("a repeat under a key finds what an earlier try made on other nodes, although there is room now", async () => {
  const { api, others, id } = await withNodes("n2");
  await using _ = api;
  const first = await fork(api, id, { count: 2 }, "k");
  assert.deepEqual(where(first), ["n1", "n2"]);
  const ids = (made: typeof first) => made.map((one) => ("id" in one ? one.id : one.kind));
  const again = await fork(api, id, { count: 2, nodes: "any" }, "k");
  // The node of the parent refuses the last of those that it is asked for, and has the only one already.
  assert.deepEqual(ids(again), ids(first));
  assert.equal(others[0]?.sandboxes.size, 1);
  assert.notDeepEqual(ids(await fork(api, id, { count: 2 }, "l")), ids(first));
});

test("a caller who leaves while another node makes a fork leaves none", async () => {
  const { api, others, id } = await withNodes("n2");
  await using _ = api;
  const node = others[0];
  assert.ok(node !== undefined);
  const reached = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  node.before = async (call) => {
    if (call === "create") {
      reached.resolve();
      await gone.promise;
    }
  };
  const leaving = new AbortController();
  const body = JSON.stringify({ count: 1, nodes: "other" });
  const headers = { authorization: `Bearer ${api.token}`, "content-type": "application/json" };
  const asked = fetch(`${api.url}/v1/sandboxes/${id}/fork`, { method: "POST", headers, body, signal: leaving.signal });
  await reached.promise;
  leaving.abort();
  await assert.rejects(asked);
  while (node.signals.get("create")?.aborted !== true) await new Promise((resolve) => setImmediate(resolve));
  gone.resolve();
  while (!node.calls.some((call) => call.startsWith("destroy"))) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(node.sandboxes.size, 0);
});

test("nodes that take forks are given no new sandboxes", async () => {
  const { api, others } = await withNodes("n2");
  await using _ = api;
  const ids = await Promise.all(Array.from({ length: 8 }, () => api.sandbox()));
  assert.deepEqual(new Set(ids.map((each) => edgeOf(each as SandboxId))), new Set(["n1"]));
  assert.equal(others[0]?.calls.includes("create"), false);
});
