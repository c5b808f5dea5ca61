import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import Fastify from "fastify";
import { SandboxError } from "#core/errors.ts";
import { rig } from "../test-support/rig.ts";
import { SILENT } from "../test-support/test-node.ts";
import { pathReader, type UpgradeCall, type UpgradeRoute, Upgrades } from "./upgrade.ts";

/** A server with one route under `/echo/{name}`, and the tokens of a control plane. */
async function server(take: (call: UpgradeCall) => Promise<void>) {
  const api = await rig();
  const read = pathReader("/echo/{name}");
  const route: UpgradeRoute = { claims: ({ url = "" }) => read(url) !== undefined, take };
  const upgrades = new Upgrades({ iam: api.control.iam, log: SILENT }, [route]);
  const app = Fastify({ http: { shouldUpgradeCallback: upgrades.claims } });
  upgrades.attach(app);
  app.get("/plain", async () => "plain");
  const url = new URL(await app.listen({ host: "127.0.0.1", port: 0 }));
  const close = async () => {
    await app.close();
    await api[Symbol.asyncDispose]();
  };
  return { port: url.port, token: api.token, app, [Symbol.asyncDispose]: close };
}

type Outcome = { readonly status: number; readonly text: string } | { readonly socket: Duplex; readonly head: Buffer };

async function ask(port: string, path: string, headers: Readonly<Record<string, string>>): Promise<Outcome> {
  const request = http.get({
    port,
    path,
    agent: false,
    headers: { connection: "Upgrade", upgrade: "echo", ...headers },
  });
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  request.on("error", reject);
  request.on("upgrade", (_, socket, head) => resolve({ socket, head }));
  request.on("response", async (response) => {
    let text = "";
    for await (const chunk of response) text += chunk;
    resolve({ status: response.statusCode ?? 0, text });
  });
  return promise;
}

async function echo({ socket }: UpgradeCall): Promise<void> {
  socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
  socket.pipe(socket);
}

test("a claimed upgrade reaches its route with the caller, by header or by subprotocol", async () => {
  const names: string[] = [];
  await using api = await server(async (call) => {
    names.push(call.principal.name);
    await echo(call);
  });
  const ways = [
    { authorization: `Bearer ${api.token}` },
    { "sec-websocket-protocol": `other, dsec.bearer.${api.token}` },
  ] as const;
  for (const headers of ways) {
    const outcome = await ask(api.port, "/echo/x?y=1", headers);
    assert.ok("socket" in outcome);
    outcome.socket.write("hello");
    const [bytes] = await once(outcome.socket, "data");
    assert.equal(String(bytes), "hello");
    outcome.socket.destroy();
  }
  assert.deepEqual(names, ["root", "root"]);
});

test("without a token, or with a wrong one, nothing is upgraded", async () => {
  await using api = await server(echo);
  for (const headers of [{}, { authorization: "Bearer x" }, { "sec-websocket-protocol": "dsec.bearer.x" }]) {
    const outcome = await ask(api.port, "/echo/x", headers as Record<string, string>);
    assert.ok("status" in outcome);
    assert.equal(outcome.status, 401);
    assert.match(outcome.text, /"kind":"Unauthenticated"/);
  }
});

test("a client that was refused and keeps its side open is let go", async () => {
  await using api = await server(echo);
  const ended = new Promise<void>((resolve) => api.app.server.on("connection", (one) => one.once("close", resolve)));
  const client = connect({ port: Number(api.port), host: "127.0.0.1", allowHalfOpen: true });
  client.write("GET /echo/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
  client.resume();
  await once(client, "end");
  await ended;
  client.destroy();
});

test("a refusal of the route is the reply", async () => {
  await using api = await server(async () => {
    throw new SandboxError("NotFound", "no sandbox x");
  });
  const outcome = await ask(api.port, "/echo/x", { authorization: `Bearer ${api.token}` });
  assert.ok("status" in outcome);
  assert.equal(outcome.status, 404);
  assert.match(outcome.text, /no sandbox x/);
});

test("what no route claims is a plain request, whatever upgrade it offers", async () => {
  await using api = await server(echo);
  const outcome = await ask(api.port, "/plain", { upgrade: "h2c" });
  assert.deepEqual(outcome, { status: 200, text: "plain" });
});

test("the end of the server cuts upgraded connections, and their calls hear of it", async () => {
  let signal: AbortSignal | undefined;
  await using api = await server(async (call) => {
    signal = call.signal;
    await echo(call);
  });
  const outcome = await ask(api.port, "/echo/x", { authorization: `Bearer ${api.token}` });
  assert.ok("socket" in outcome);
  const closed = once(
    outcome.socket.on("error", () => undefined),
    "close",
  );
  await api.app.close();
  await closed;
  assert.equal(signal?.aborted, true);
});

test("a path is read by its template", () => {
  const read = pathReader("/v1/sandboxes/{id}/commands/{command}/attach");
  assert.deepEqual(read("/v1/sandboxes/a/commands/b/attach?x=1"), { id: "a", command: "b" });
  for (const other of ["/v1/sandboxes/a/commands/b", "/v1/sandboxes/a/commands/b/attach/c", "/x"]) {
    assert.equal(read(other), undefined);
  }
});
