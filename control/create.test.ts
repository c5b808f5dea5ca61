import assert from "node:assert/strict";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { memberOf, rig } from "./test-support/rig.ts";
import { TestNode } from "./test-support/test-node.ts";

const KEY = { "idempotency-key": "k" };

test("a create that broke off is finished by its repeat, under the same id", async () => {
  await using api = await rig();
  const ids: string[] = [];
  const create = api.node.create.bind(api.node);
  let attempt = 0;
  api.node.create = async (spec, signal) => {
    ids.push(spec.id);
    attempt += 1;
    if (attempt === 1) throw new SandboxError("Unavailable", "the connection broke");
    return create(spec, signal);
  };
  const post = () => api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: KEY });
  assert.equal((await post()).status, 503);
  const { status, json } = await post();
  assert.equal(status, 201);
  assert.deepEqual(ids, [json.id, json.id]);
});

test("a repeat joins even when the names mean other layers by now", async () => {
  await using api = await rig();
  const specs: object[] = [];
  const create = api.node.create.bind(api.node);
  api.node.create = async (spec, signal) => {
    specs.push(spec);
    if (specs.length === 1) throw new SandboxError("Unavailable", "the connection broke");
    return create(spec, signal);
  };
  const post = () => api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: KEY });
  await post();
  await api.call("POST", "/v1/artifacts/import?name=busybox&kind=base", { body: "newer" });
  assert.equal((await post()).status, 201);
  assert.deepStrictEqual(specs[1], specs[0]);
});

test("concurrent creates under one key agree when the first node is full", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2")];
  await using api = await rig({ nodes });
  let refusals = 0;
  for (const node of nodes) {
    const create = node.create.bind(node);
    node.create = async (spec, signal) => {
      await new Promise((resolve) => setImmediate(resolve));
      // Whichever node is asked first is full, once and for all.
      const full = nodes.find((each) => each.calls.includes("full"));
      if (full === undefined) node.calls.push("full");
      if (full === undefined || full === node) {
        refusals += 1;
        throw new SandboxError("NodeFull", "full");
      }
      return create(spec, signal);
    };
  }
  const answers = await Promise.all(
    Array.from({ length: 8 }, () => api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: KEY })),
  );
  const made = answers.filter(({ status }) => status === 201);
  assert.ok(made.length >= 1 && refusals >= 1);
  assert.equal(new Set(made.map(({ json }) => json.id)).size, 1);
  assert.equal(
    nodes.reduce((sum, node) => sum + node.sandboxes.size, 0),
    1,
  );
  for (const { status, json } of answers)
    assert.ok(status === 201 || json.error.kind === "NodeFull", JSON.stringify(json));
});

test("what the last node lacks is passed on when none has room", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2")];
  await using api = await rig({ nodes });
  const asked: string[] = [];
  for (const node of nodes) {
    node.create = async () => {
      asked.push(node.edge);
      throw new SandboxError("NodeFull", `${node.edge} keeps 512 MiB`, { details: { lacking: "availableMemoryMiB" } });
    };
  }
  for (const headers of [{}, KEY]) {
    const { status, json } = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers });
    assert.deepEqual([status, json.error.kind], [507, "NodeFull"]);
    assert.equal(
      json.error.message,
      `no node has room for the sandbox now; the last one asked says: ${asked.at(-1)} keeps 512 MiB`,
    );
    assert.deepEqual(json.error.details, { lacking: "availableMemoryMiB" });
    assert.match(json.error.hint ?? "", /ask for less/);
  }
  assert.equal(asked.length, 4);
});

test("no node at all is Unavailable with a hint", async () => {
  await using api = await rig();
  api.control.watcher.remove(api.node.edge);
  const { status, json } = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: KEY });
  assert.deepEqual([status, json.error.kind], [503, "Unavailable"]);
  assert.match(json.error.hint ?? "", /node/);
});

test("layers of a create under way are kept from collection", async () => {
  await using api = await rig();
  const entered = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const create = api.node.create.bind(api.node);
  api.node.create = async (spec, signal) => {
    entered.resolve();
    await go.promise;
    return create(spec, signal);
  };
  const layer = (await api.call("GET", "/v1/artifacts/busybox")).json.layers[0];
  const making = api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } });
  await entered.promise;
  await api.call("DELETE", "/v1/artifacts/busybox");
  assert.deepEqual([...(api.maker.kept[0] ?? [])], [layer]);
  go.resolve();
  assert.equal((await making).status, 201);
});

test("a sandbox keeps what its names meant when its create began, whatever becomes of the tags meanwhile", async () => {
  await using api = await rig();
  const entered = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const create = api.node.create.bind(api.node);
  api.node.create = async (spec, signal) => {
    entered.resolve();
    await go.promise;
    return create(spec, signal);
  };
  const before = (await api.call("GET", "/v1/artifacts/busybox")).json;
  const making = api.call("POST", "/v1/sandboxes", { json: { base: "busybox" } });
  await entered.promise;
  await api.call("POST", "/v1/artifacts/import?name=busybox&kind=base", { body: "another" });
  await api.call("DELETE", "/v1/artifacts/busybox");
  go.resolve();
  const { status, json } = await making;
  assert.equal(status, 201);
  assert.deepEqual(json.artifacts, [{ reference: "busybox:latest", digest: before.digest }]);
  const spec = [...api.node.sandboxes.values()][0]?.spec;
  assert.deepEqual(spec?.layers, before.layers);
  // The digest is still a name for it.
  const again = await api.call("POST", "/v1/sandboxes", { json: { base: `busybox@${before.digest}` } });
  assert.deepEqual([again.status, again.json.artifacts?.[0]?.digest], [201, before.digest]);
});

test("a create that still looks up names keeps what it has found from collection", async () => {
  const entered = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  await using api = await rig({
    store: {
      name: "a store",
      waiting: 0,
      onDemand: undefined,
      probe: async () => undefined,
      share: async () => undefined,
      provide: async () => undefined,
      release: async () => undefined,
      collect: async () => ({ artifacts: 0, layers: 0, blobs: 0, bytes: 0 }),
      publish: () => undefined,
      withdraw: async () => undefined,
      // The base is known here; the toolkit has to be asked for.
      async find() {
        entered.resolve();
        await go.promise;
        return undefined;
      },
    },
  });
  const layer = (await api.call("GET", "/v1/artifacts/busybox")).json.layers[0];
  const making = api.call("POST", "/v1/sandboxes", { json: { base: "busybox", toolkits: ["far"] } });
  await entered.promise;
  const collecting = api.call("POST", "/v1/artifacts/collect");
  const removing = api.call("DELETE", "/v1/artifacts/busybox");
  go.resolve();
  assert.equal((await making).json.error.kind, "NotFound");
  assert.equal((await collecting).status, 200);
  assert.equal((await removing).status, 204);
  for (const kept of api.maker.kept) assert.ok(kept.has(layer as LayerDigest));
});

test("only who looks after nodes collects by hand", async () => {
  await using api = await rig();
  const token = await memberOf(api, "team");
  assert.equal((await api.call("POST", "/v1/artifacts/collect", { token })).json.error.kind, "PermissionDenied");
});
