import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { test } from "node:test";
import { memberOf, type Rig, rig } from "../test-support/rig.ts";
import { Bodies } from "./bodies.ts";

const KIB = 1024;
/** A project may hold 100 KiB. */
const OPTIONS = { bodyBytes: 400 * KIB };
const json = { name: "packed", exclude: Array.from({ length: 80 }, (_, n) => `${n}-`.padEnd(1000, "x")) };

/** A rig whose node packs nothing before it is told to. */
async function held() {
  const api = await rig(OPTIONS);
  const gate = Promise.withResolvers<void>();
  api.node.before = (call) => (call === "packDiff" ? gate.promise : undefined);
  return { api, open: () => gate.resolve(), id: await api.sandbox() };
}

const packs = (api: Rig) => api.node.calls.filter((call) => call.startsWith("packDiff")).length;
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function untilPacks(api: Rig, count: number): Promise<void> {
  while (packs(api) < count) await turn();
}

test("a project that holds its share of bodies waits with the next, and others do not wait for it", async () => {
  const { api, open, id } = await held();
  await using _ = api;
  const token = await memberOf(api, "other");
  const theirs = (await api.call("POST", "/v1/sandboxes", { json: { base: "own" }, token })).json.id;
  const first = api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
  await untilPacks(api, 1);
  const second = api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
  const others = api.call("POST", `/v1/sandboxes/${theirs}/pack`, { json, token });
  await untilPacks(api, 2);
  // What is small is read at once, whoever waits.
  assert.equal((await api.call("POST", `/v1/sandboxes/${id}/fork`, { json: { count: 1 } })).status, 201);
  assert.equal(packs(api), 2);
  open();
  const statuses = (await Promise.all([first, second, others])).map(({ status }) => status);
  assert.deepEqual([statuses, packs(api)], [[201, 201, 201], 3]);
});

test("who leaves while it waits, or is refused, holds nothing", async () => {
  const { api, open, id } = await held();
  await using _ = api;
  const first = api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
  await untilPacks(api, 1);
  const leaving = new AbortController();
  const headers = { authorization: `Bearer ${api.token}`, "content-type": "application/json" };
  const url = `${api.url}/v1/sandboxes/${id}/pack`;
  const left = fetch(url, { method: "POST", headers, body: JSON.stringify(json), signal: leaving.signal });
  await turn();
  leaving.abort();
  await assert.rejects(left);
  open();
  assert.equal((await first).status, 201);
  for (let n = 0; n < 5; n += 1) {
    assert.equal((await api.call("POST", `/v1/sandboxes/${id}/pack`, { json: { ...json, more: 1 } })).status, 400);
  }
  assert.equal((await api.call("POST", `/v1/sandboxes/${id}/pack`, { json })).status, 201);
});

test("a body that does not tell its size counts as the largest until it has been read", async () => {
  const { api, open, id } = await held();
  await using _ = api;
  const headers = { authorization: `Bearer ${api.token}`, "content-type": "application/json" };
  const request = http.request(new URL(`/v1/sandboxes/${id}/pack`, api.url), { method: "POST", headers });
  const [start, rest] = [JSON.stringify(json).slice(0, 1000), JSON.stringify(json).slice(1000)];
  request.write(start);
  await once(request, "socket");
  // It is larger than all there is, so it is held alone; when it is known to be small, the next one begins.
  const next = () => api.call("POST", `/v1/sandboxes/${id}/pack`, { json: { ...json, exclude: [] } });
  request.end(rest);
  await untilPacks(api, 1);
  const small = next();
  await untilPacks(api, 2);
  open();
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.resume();
  assert.deepEqual([response.statusCode, (await small).status], [201, 201]);
});

test("a call that waits too long for room ends at its own time limit", async () => {
  const { api, open, id } = await held();
  await using _ = api;
  const first = api.call("POST", `/v1/sandboxes/${id}/pack`, { json });
  await untilPacks(api, 1);
  const headers = { "dsec-timeout-ms": "50" };
  const late = await api.call("POST", `/v1/sandboxes/${id}/pack`, { json, headers });
  assert.deepEqual([late.status, late.json.error.kind], [504, "DeadlineExceeded"]);
  open();
  assert.deepEqual([(await first).status, packs(api)], [201, 1]);
});

test("a body that has not come when its call ends is not collected any further", async () => {
  const { api, id } = await held();
  await using _ = api;
  const url = new URL(`/v1/sandboxes/${id}/pack`, api.url);
  const headers = { authorization: `Bearer ${api.token}`, "content-type": "application/json", "dsec-timeout-ms": "50" };
  const request = http.request(url, { method: "POST", headers: { ...headers, "content-length": 100 * KIB } });
  request.on("error", () => undefined);
  request.write(JSON.stringify(json).slice(0, 1000));
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const body = JSON.parse((await response.toArray()).join(""));
  assert.deepEqual([response.statusCode, body.error.kind], [504, "DeadlineExceeded"]);
  // Whoever goes on sending is read from for a while, by nobody who keeps it.
  request.end(JSON.stringify(json).slice(1000));
  const other = await api.call("POST", `/v1/sandboxes/${id}/fork`, { json: { count: 1 } });
  assert.deepEqual([other.status, packs(api)], [201, 0]);
});

test("a body that comes too slowly is refused, though its call has no time limit", async () => {
  const bodies = new Bodies(400 * KIB, { graceMs: 20 });
  const refused = Promise.withResolvers<unknown>();
  const signal = new AbortController().signal;
  await using server = http.createServer(async (request, response) => {
    const refuse = (reason: unknown) => {
      refused.resolve(reason);
      response.writeHead(504, { connection: "close" }).end();
    };
    await bodies.room(request, response, { project: "own", mostBytes: 100 * KIB, signal, refuse });
    request.resume();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const request = http.request({ port, method: "POST", headers: { "content-length": 100 * KIB } });
  request.on("error", () => undefined);
  request.write("slow");
  assert.match(String(await refused.promise), /did not come/);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.resume();
  await once(response, "close");
  request.destroy();
  while (bodies.heldBytes > 0) await turn();
});
