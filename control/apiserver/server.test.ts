import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Server } from "node:http";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { OPERATIONS } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import { MemoryState } from "../state/memory.ts";
import { rig, send } from "../test-support/rig.ts";
import { TestNode } from "../test-support/test-node.ts";

test("nothing but /healthz answers without a valid token", async () => {
  await using api = await rig();
  assert.deepEqual((await send(api.url, "GET", "/healthz")).json, { status: "ok", version: "test" });
  for (const { method, path } of Object.values(OPERATIONS).filter((operation) => !operation.open)) {
    for (const token of [null, `dsec_${"A".repeat(43)}`, "x"]) {
      const answer = await send(api.url, method, path.replaceAll(/[{}]/g, ""), { token });
      assert.equal(answer.status, 401, `${method} ${path}`);
      assert.equal(answer.json.error.kind, "Unauthenticated");
      assert.equal(answer.headers["www-authenticate"], "Bearer");
    }
  }
  assert.equal((await send(api.url, "GET", "/nothing")).status, 401);
  assert.deepEqual(
    api.node.calls.filter((name) => name !== "info"),
    [],
  );
});

test("a body is not read before the token was checked", async () => {
  await using api = await rig();
  const answer = await send(api.url, "POST", "/v1/sandboxes", {
    body: "{",
    headers: { "content-type": "application/json" },
  });
  assert.equal(answer.status, 401);
});

test("headers have a time limit: nobody is known before they are there", async () => {
  await using api = await rig();
  const servers = new Set<Server>();
  const note = (message: unknown) => servers.add((message as { readonly server: Server }).server);
  // Node tells of each request and the server that it came to.
  subscribe("http.server.request.start", note);
  await api.call("GET", "/v1/whoami");
  unsubscribe("http.server.request.start", note);
  assert.deepEqual(
    [...servers].map(({ headersTimeout }) => headersTimeout),
    [60_000],
  );
});

test("unknown calls say so", async () => {
  await using api = await rig();
  const { status, json } = await api.call("GET", "/v1/nothing?x=1");
  assert.deepEqual([status, json.error.kind], [404, "NotFound"]);
  assert.match(json.error.message, /GET \/v1\/nothing$/);
});

test("the token tells who is who", async () => {
  await using api = await rig();
  const { json } = await api.call("GET", "/v1/whoami");
  assert.deepEqual(json, { principal: "root", project: "default", role: "admin" });
});

test("an effective time limit comes back, cut to the bound, and a bad one is refused", async () => {
  await using api = await rig();
  const limit = async (value: string) => await api.call("GET", "/v1/whoami", { headers: { "dsec-timeout-ms": value } });
  assert.equal((await limit("1234")).headers["dsec-timeout-ms"], "1234");
  assert.equal((await limit("999999999")).headers["dsec-timeout-ms"], "3600000");
  for (const bad of ["0", "-1", "1.5", "NaN", "", "1e3"]) {
    const { status, json } = await limit(bad);
    assert.equal(status, 400, bad);
    assert.match(json.error.message, /Dsec-Timeout-Ms/);
  }
});

test("a node that does not answer ends the call at its limit, as a typed error", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  api.node.before = (name) => (name === "inspect" ? new Promise<void>(() => undefined) : undefined);
  const { status, json } = await api.call("GET", `/v1/sandboxes/${id}`, { headers: { "dsec-timeout-ms": "50" } });
  assert.deepEqual([status, json.error.kind, json.error.retry], [504, "DeadlineExceeded", "backoff"]);
  assert.equal(api.node.signals.get("inspect")?.aborted, true);
});

test("an unexpected fault tells the client nothing of its inside", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  api.node.before = () => {
    throw new TypeError("secret path /root/x");
  };
  const { status, json } = await api.call("GET", `/v1/sandboxes/${id}`);
  assert.deepEqual([status, json.error.kind], [500, "Internal"]);
  assert.ok(!JSON.stringify(json).includes("secret"));
});

test("details and hints of a typed error arrive", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  api.node.before = () => {
    throw new SandboxError("SandboxLimit", "no room", { hint: "delete files", details: { limitMiB: 5, names: ["a"] } });
  };
  const { status, json } = await api.call("GET", `/v1/sandboxes/${id}`);
  assert.equal(status, 409);
  const error = { kind: "SandboxLimit", message: "no room", retry: "never", hint: "delete files" };
  assert.deepEqual(json.error, { ...error, details: { limitMiB: 5, names: ["a"] } });
});

test("bodies that are no JSON, no UTF-8, no Unicode or too large are refused by name", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const post = (body: Uint8Array | string, type = "application/json") =>
    api.call("POST", `/v1/sandboxes/${id}/commands`, { body, headers: { "content-type": type } });
  const cases: readonly (readonly [Uint8Array | string, string | undefined, number, RegExp])[] = [
    ["{", undefined, 400, /not JSON/],
    ['{"argv":["a"],"timeLimitMs":NaN}', undefined, 400, /not JSON/],
    [Buffer.from([0x7b, 0xff, 0x7d]), undefined, 400, /not UTF-8/],
    ['{"argv":["\\ud800"]}', undefined, 400, /not valid Unicode/],
    ["", undefined, 400, /needs a body/],
    ['{"argv":["a"]}', "text/plain", 400, /unexpected type/],
    [`{"argv":["${"x".repeat(8 * 1024 * 1024)}"]}`, undefined, 413, /too large/],
    ["[]", undefined, 400, /must be object/],
  ];
  for (const [body, type, status, message] of cases) {
    const answer = await post(body, type);
    assert.equal(answer.status, status, `${message}`);
    assert.match(answer.json.error.message, message);
  }
  assert.ok(!api.node.calls.includes("startCommand"));
});

test("a client that leaves ends the call on the node", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const entered = Promise.withResolvers<AbortSignal>();
  api.node.before = (name, signal) => {
    if (name !== "waitCommand") return;
    entered.resolve(signal);
    return new Promise<void>(() => undefined);
  };
  const { hostname, port } = new URL(api.url);
  const http = await import("node:http");
  const path = `/v1/sandboxes/${id}/commands/caaaaaaaaaaaa?waitMs=1000`;
  const request = http.get({ hostname, port, path, headers: { authorization: `Bearer ${api.token}` } });
  request.on("error", () => undefined);
  const signal = await entered.promise;
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
  request.destroy();
  await aborted;
  assert.equal((signal.reason as SandboxError).kind, "Cancelled");
});

test("a port in use is a clear error and leaves the other listener alone", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => other.once("listening", resolve));
  const address = other.address();
  assert.ok(typeof address === "object" && address !== null);
  const { openControl } = await import("../control.ts");
  const { TestMaker } = await import("../test-support/rig.ts");
  const { SILENT } = await import("../test-support/test-node.ts");
  const config = {
    host: "127.0.0.1",
    port: address.port,
    version: "1",
    bodyBytes: 1,
    defaultBackend: "container",
    seed: 1,
    buildCacheMs: 1,
    runtimeDirectories: [],
  } as const;
  await using control = await openControl({
    config,
    state: new MemoryState(),
    nodes: [],
    maker: new TestMaker(),
    log: SILENT,
  });
  await assert.rejects(control.listen(), { kind: "FailedPrecondition", message: /port is in use/, hint: /--listen/ });
  other.close();
});

test("nodes are listed with the age of what is known, and only admins count resources", async () => {
  await using api = await rig({ nodes: [new TestNode("n1"), new TestNode("n2")] });
  const { json } = await api.call("GET", "/v1/nodes");
  assert.deepEqual(
    json.nodes.map(({ edge, state }: { edge: string; state: string }) => [edge, state]),
    [
      ["n1", "ready"],
      ["n2", "ready"],
    ],
  );
  assert.ok(json.nodes.every(({ ageMs }) => ageMs >= 0 && ageMs < 5000));
  const counted = await api.call("GET", "/v1/nodes/n1/resources");
  assert.deepEqual(counted.json.resources, [{ class: "cgroups", expected: 1, found: 2, surplus: ["x"] }]);
  assert.equal((await api.call("GET", "/v1/nodes/none/resources")).status, 404);
  assert.equal((await api.call("GET", "/v1/nodes/%20/resources")).status, 400);
  const token = await api.control.iam.createToken({ name: "m", project: "default", role: "member" });
  assert.equal((await api.call("GET", "/v1/nodes/n1/resources", { token })).json.error.kind, "PermissionDenied");
});

test("the OpenAPI document has every call, and every reference in it resolves", async () => {
  await using api = await rig();
  const { json } = await api.call("GET", "/openapi.json");
  assert.equal(json.openapi, "3.1.0");
  const ids = Object.values<Record<string, { operationId: string }>>(json.paths).flatMap((item) =>
    Object.values(item).map(({ operationId }) => operationId),
  );
  assert.deepEqual(ids.sort(), Object.keys(OPERATIONS).sort());
  for (const [, name] of JSON.stringify(json).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
    assert.ok(json.components.schemas[name ?? ""] !== undefined, name);
  }
});

test("what is hardly HTTP is refused in the same form as everything else", async () => {
  await using api = await rig();
  const cases: readonly (readonly [string, number, string])[] = [
    ["GARBAGE\r\n\r\n", 400, "InvalidArgument"],
    ["GET /v1/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400, "InvalidArgument"],
    ["GET /v1/sandboxes/%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400, "InvalidArgument"],
    ["BREW /v1/x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "InvalidArgument"],
    [`GET / HTTP/1.1\r\nX: ${"x".repeat(100_000)}\r\n\r\n`, 413, "TooLarge"],
  ];
  for (const [text, status, kind] of cases) {
    const reply = await exchange(api.url, text);
    assert.match(reply, new RegExp(`^HTTP/1.1 ${status} `), text.slice(0, 60));
    assert.equal(JSON.parse(reply.slice(reply.indexOf("\r\n\r\n"))).error.kind, kind);
  }
  assert.equal((await api.call("GET", "/v1/whoami")).status, 200);
});

/** Sends text on a connection of its own; what came back until its end. */
function exchange(url: string, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1", () => socket.write(text));
    let reply = "";
    socket.on("data", (chunk) => {
      reply += chunk.toString();
    });
    // A reset after the reply is the server's way to stop reading what it has refused.
    socket.on("error", (error) => (reply === "" ? reject(error) : resolve(reply)));
    socket.on("close", () => resolve(reply));
  });
}
