import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { memberOf, rig, send } from "../../test-support/rig.ts";
import { TestNode } from "../../test-support/test-node.ts";

test("a create answers with everything that is in force", async () => {
  await using api = await rig();
  const { status, json } = await api.call("POST", "/v1/sandboxes", {
    json: { base: "busybox", env: { A: "1" }, resources: { memoryMiB: 64 }, labels: { run: "7" }, idleTimeoutMs: 1000 },
  });
  assert.equal(status, 201);
  assert.match(json.id, /^sn1-[a-z2-7]{16}$/);
  assert.deepEqual(
    [json.state, json.edge, json.project, json.backend, json.base, json.user, json.workdir, json.hostname],
    ["ready", "n1", "default", "container", "busybox", "root", "/", json.id],
  );
  assert.deepEqual(json.resources, { cpus: 1, memoryMiB: 64, swapMiB: 0, pids: 512 });
  assert.equal(json.env.A, "1");
  assert.match(json.env.PATH ?? "", /\/usr\/bin/);
  assert.deepEqual([json.idleTimeoutMs, "maxLifetimeMs" in json], [1000, false]);
});

test("every bad value names its field and its bound, and no node hears of it", async () => {
  await using api = await rig();
  const cases: readonly (readonly [object, RegExp])[] = [
    [{ resources: { memoryMiB: 0 } }, /resources\.memoryMiB must be >= 1; it is 0/],
    [{ resources: { memoryMiB: -5 } }, /resources\.memoryMiB must be >= 1/],
    [{ resources: { memoryMiB: Number.NaN } }, /resources\.memoryMiB must be integer; it is null/],
    [{ resources: { memoryMiB: 1.5 } }, /resources\.memoryMiB must be integer/],
    [{ resources: { memoryMiB: "64" } }, /resources\.memoryMiB must be integer; it is "64"/],
    [{ resources: { memoryMiB: 1e12 } }, /resources\.memoryMiB must be <= /],
    [{ resources: { memoryMiB: 70_000 } }, /resources\.memoryMiB is 70000, and the largest node has 65536/],
    [{ resources: { cpus: 0 } }, /resources\.cpus must be >= 0\.01/],
    [{ resources: { pids: 0 } }, /resources\.pids must be >= 1/],
    [{ resources: { swapMiB: -1 } }, /resources\.swapMiB must be >= 0/],
    [{ resources: { diskMiB: 0 } }, /resources\.diskMiB must be >= 1/],
    [{ resources: { memory: 64 } }, /resources has an unknown key: "memory"/],
    [{ memoryMiB: 64 }, /the body has an unknown key: "memoryMiB"/],
    [{ idleTimeoutMs: 0 }, /idleTimeoutMs must be >= 1/],
    [{ maxLifetimeMs: -1 }, /maxLifetimeMs must be >= 1/],
    [{ env: { "A=B": "1" } }, /env has a name that is not allowed: "A=B"/],
    [{ env: { A: "\0" } }, /env\.A must match/],
    [{ env: { A: 1 } }, /env\.A must be string/],
    [{ hostname: "-x" }, /hostname must match/],
    [{ workdir: "tmp" }, /workdir must match/],
    [{ user: "" }, /user must/],
    [{ backend: "jail" }, /backend must be one of container, microvm/],
    [{ rlimits: { nofile: { soft: 2, hard: 1 } } }, /rlimits\.nofile: soft 2 is above hard 1/],
    [{ rlimits: { nofiles: { soft: 1, hard: 1 } } }, /rlimits has an unknown key: "nofiles"/],
    [{ labels: { "a=b": "x" } }, /labels has a name that is not allowed/],
    [{ toolkits: "x" }, /toolkits must be array/],
    [{ base: undefined }, /base is missing in the body/],
    [{ base: "Bad Name" }, /"Bad Name" does not name an artifact/],
    [{ __proto__x: 1 }, /unknown key/],
  ];
  for (const [change, message] of cases) {
    const { status, json } = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox", ...change } });
    assert.equal(status, 400, JSON.stringify(change));
    assert.equal(json.error.kind, "InvalidArgument");
    assert.match(json.error.message, message);
  }
  assert.ok(!api.node.calls.includes("create"));
});

test("an unknown base, workspace or toolkit is NotFound with a hint; a part of the wrong kind is refused by name", async () => {
  await using api = await rig();
  const create = (json: object) => api.call("POST", "/v1/sandboxes", { json });
  for (const json of [
    { base: "none" },
    { base: "busybox", workspace: "none" },
    { base: "busybox", toolkits: ["none"] },
  ]) {
    const answer = await create(json);
    assert.equal(answer.status, 404);
    assert.match(answer.json.error.message, /no artifact none:latest/);
    assert.ok((answer.json.error.hint ?? "").length > 0);
  }
  const wrong = await create({ base: "busybox", workspace: "busybox" });
  assert.equal(wrong.status, 400);
  assert.match(wrong.json.error.message, /busybox:latest is a base, not a workspace/);
});

test("one key makes one sandbox, however often and however concurrently it is sent", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2")];
  await using api = await rig({ nodes });
  const create = () =>
    api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: { "idempotency-key": "k" } });
  const answers = await Promise.all(Array.from({ length: 20 }, create));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [201]);
  assert.equal(new Set([...answers, await create()].map(({ json }) => json.id)).size, 1);
  assert.equal(
    nodes.reduce((sum, node) => sum + node.sandboxes.size, 0),
    1,
  );
});

test("the same key with another body is refused; in another project it is another key", async () => {
  await using api = await rig();
  const headers = { "idempotency-key": "k" };
  const first = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox", user: "a" }, headers });
  const other = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox", user: "b" }, headers });
  assert.deepEqual([other.status, other.json.error.kind], [400, "InvalidArgument"]);
  const reordered = await api.call("POST", "/v1/sandboxes", { json: { user: "a", base: "busybox" }, headers });
  assert.equal(reordered.json.id, first.json.id);
  const token = await memberOf(api, "team");
  const foreign = await api.call("POST", "/v1/sandboxes", { json: { base: "own" }, headers, token });
  assert.equal(foreign.status, 201);
  assert.notEqual(foreign.json.id, first.json.id);
});

test("a key whose sandbox was removed does not bring it back", async () => {
  await using api = await rig();
  const create = () =>
    api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: { "idempotency-key": "k" } });
  const { json } = await create();
  await api.call("DELETE", `/v1/sandboxes/${json.id}`);
  const again = await create();
  assert.deepEqual([again.status, again.json.error.kind], [412, "FailedPrecondition"]);
  assert.equal(api.node.sandboxes.size, 0);
});

test("a create that was refused frees its key", async () => {
  await using api = await rig();
  const create = () =>
    api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: { "idempotency-key": "k" } });
  api.node.before = (name) => {
    if (name === "create") throw new SandboxError("InvalidArgument", "no such user");
  };
  assert.equal((await create()).status, 400);
  api.node.before = () => undefined;
  assert.equal((await create()).status, 201);
});

test("a full node is passed over for the next, with a key and without", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2"), new TestNode("n3")];
  await using api = await rig({ nodes });
  for (const node of nodes.slice(0, 2)) {
    node.before = (name) => {
      if (name === "create") throw new SandboxError("NodeFull", "full");
    };
  }
  for (let n = 0; n < 10; n++) {
    const headers: Record<string, string> = n % 2 === 0 ? {} : { "idempotency-key": `k${n}` };
    const { status, json } = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers });
    assert.deepEqual([status, json.edge], [201, "n3"]);
  }
  const [, , last] = nodes;
  assert.equal(last?.sandboxes.size, 10);
  if (last !== undefined) last.before = nodes[0]?.before ?? last.before;
  for (const headers of [{}, { "idempotency-key": "z" }] as const) {
    const { status, json } = await api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers });
    assert.deepEqual([status, json.error.kind, json.error.retry], [507, "NodeFull", "elsewhere"]);
  }
});

test("a sandbox whose creator left before the answer does not stay", async () => {
  await using api = await rig();
  const left = Promise.withResolvers<void>();
  const entered = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  api.node.create = async function (this: TestNode, spec) {
    entered.resolve();
    await left.promise;
    return TestNode.prototype.create.call(this, spec, new AbortController().signal);
  };
  api.node.destroy = async function (this: TestNode, id, signal) {
    await TestNode.prototype.destroy.call(this, id, signal);
    gone.resolve();
  };
  const failed = api.call("POST", "/v1/sandboxes", { json: { base: "busybox" }, headers: { "dsec-timeout-ms": "60" } });
  await entered.promise;
  assert.equal((await failed).status, 504);
  left.resolve();
  await gone.promise;
  assert.equal(api.node.sandboxes.size, 0);
});

test("lists are pages in the order of ids, over all nodes, filtered by label", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2")];
  await using api = await rig({ nodes });
  for (let n = 0; n < 9; n++) {
    await api.call("POST", "/v1/sandboxes", {
      json: { base: "busybox", labels: { odd: String(n % 2), "a/b": "x=y z" } },
    });
  }
  const seen: string[] = [];
  // A node gives no more at once than a message holds; a page is made of as many answers as it takes.
  api.node.listedAtOnce = 3;
  for (let cursor: string | undefined; ; ) {
    const { json } = await api.call("GET", `/v1/sandboxes?limit=4${cursor === undefined ? "" : `&cursor=${cursor}`}`);
    seen.push(...json.sandboxes.map(({ id }: { id: string }) => id));
    cursor = json.cursor;
    if (cursor === undefined) break;
  }
  assert.equal(seen.length, 9);
  assert.deepEqual(seen, [...seen].sort());
  const filtered = await api.call("GET", "/v1/sandboxes?label=odd%3D1&label=a%2Fb=x%3Dy+z");
  assert.equal(filtered.json.sandboxes.length, 4);
  assert.equal((await api.call("GET", "/v1/sandboxes?label=x")).status, 400);
  assert.match((await api.call("GET", "/v1/sandboxes?lable=x%3Dy")).json.error.message, /unknown key: "lable"/);
  assert.equal((await api.call("GET", "/v1/sandboxes?limit=0")).status, 400);
});

test("a node that does not answer is named in the list, and the others are listed", async () => {
  const nodes = [new TestNode("n1"), new TestNode("n2")];
  await using api = await rig({ nodes });
  await api.sandbox();
  for (const node of nodes) {
    if (node.sandboxes.size > 0) continue;
    node.before = () => {
      throw new SandboxError("Unavailable", "gone");
    };
    const { json } = await api.call("GET", "/v1/sandboxes");
    assert.deepEqual([json.sandboxes.length, json.unreachable], [1, [node.edge]]);
  }
});

test("time limits move one by one, and null lifts them", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const patch = async (json: object) => {
    const { idleTimeoutMs, maxLifetimeMs } = (await api.call("PATCH", `/v1/sandboxes/${id}`, { json })).json;
    return [idleTimeoutMs, maxLifetimeMs];
  };
  assert.deepEqual(await patch({ idleTimeoutMs: 5 }), [5, undefined]);
  assert.deepEqual(await patch({ maxLifetimeMs: 7 }), [5, 7]);
  assert.deepEqual(await patch({ idleTimeoutMs: null }), [undefined, 7]);
  assert.equal((await api.call("PATCH", `/v1/sandboxes/${id}`, { json: { ttl: 1 } })).status, 400);
});

test("pause and resume answer with the sandbox as it is then", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  for (const [verb, state] of [
    ["pause", "paused"],
    ["resume", "ready"],
  ]) {
    const { status, json } = await api.call("POST", `/v1/sandboxes/${id}/${verb}`);
    assert.deepEqual([status, json.id, json.state], [200, id, state]);
  }
  assert.equal((await api.call("POST", "/v1/sandboxes/sn1-none/pause")).status, 404);
});

test("delete succeeds twice and for what never was; other calls say NotFound", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  for (const target of [id, id, "sn1-aaaaaaaaaaaaaaaa", "sother-aaaaaaaaaaaaaaaa", "nonsense", "%00", "a%2Fb"]) {
    assert.equal((await api.call("DELETE", `/v1/sandboxes/${target}`)).status, 204, target);
  }
  for (const target of [id, "sother-aaaaaaaaaaaaaaaa", "nonsense"]) {
    const { status, json } = await api.call("GET", `/v1/sandboxes/${target}`);
    assert.deepEqual([status, json.error.kind], [404, "NotFound"]);
    assert.match(json.error.message, /no sandbox/);
  }
});

test("a project's sandboxes do not exist for another one", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const token = await memberOf(api, "team");
  assert.equal((await send(api.url, "DELETE", `/v1/sandboxes/${id}`, { token })).status, 204);
  assert.equal(api.node.sandboxes.size, 1);
  assert.deepEqual((await send(api.url, "GET", "/v1/sandboxes", { token })).json.sandboxes, []);
  const own = await send(api.url, "POST", "/v1/sandboxes", { token, json: { base: "own" } });
  assert.equal((await send(api.url, "GET", `/v1/sandboxes/${own.json.id}`, { token })).status, 200);
  assert.equal((await send(api.url, "GET", `/v1/sandboxes/${own.json.id}`, { token: api.token })).status, 200);
});

test("a create without a key whose client leaves just as the answer goes leaves no sandbox", async () => {
  await using api = await rig();
  // More than sockets hold: the answer cannot have been sent when the client, which reads nothing, is gone.
  const env = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`V${index}`, "x".repeat(100_000)]));
  const body = JSON.stringify({ base: "busybox", env });
  for (const key of [undefined, "kept"]) {
    const answered = Promise.withResolvers<void>();
    api.node.before = (call) => {
      if (call === "create") setImmediate(() => setImmediate(answered.resolve));
    };
    const socket = connect({ host: "127.0.0.1", port: Number(new URL(api.url).port) }).pause();
    const head = [
      "POST /v1/sandboxes HTTP/1.1",
      "Host: x",
      `Authorization: Bearer ${api.token}`,
      "Content-Type: application/json",
    ];
    if (key !== undefined) head.push(`Idempotency-Key: ${key}`);
    socket.write(`${head.join("\r\n")}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await answered.promise;
    while (api.node.sandboxes.size === 0) await new Promise(setImmediate);
    const gone = once(socket, "close");
    socket.destroy();
    await gone;
    if (key === undefined) while (api.node.sandboxes.size > 0) await new Promise(setImmediate);
  }
  // Who has a key asks again and finds it.
  assert.equal(api.node.sandboxes.size, 1);
});
