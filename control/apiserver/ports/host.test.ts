import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { bridgePort } from "../../test-support/port-bridge.ts";
import { type Answer, type Rig, rig, send } from "../../test-support/rig.ts";

const DOMAIN = "ports.test";

let api: Rig;
let id: string;
let host: string;
let port: number;
const server = http.createServer((request, response) => {
  response.setHeader("set-cookie", ["own=1; Path=/", "wide=1; Domain=ports.test; Path=/"]);
  response.end(JSON.stringify({ url: request.url, headers: request.headers }));
});
server.on("upgrade", (_, socket) => {
  socket.write("HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
  socket.pipe(socket);
});

before(async () => {
  api = await rig({ portDomain: DOMAIN });
  api.node.port = bridgePort;
  id = await api.sandbox();
  server.listen({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
  host = `${port}-${id}.${DOMAIN}`;
});
after(async () => {
  server.closeAllConnections();
  server.close();
  await api[Symbol.asyncDispose]();
});

function ask(path: string, headers: Readonly<Record<string, string>>, method = "GET"): Promise<Answer> {
  return send(api.url, method, path, { headers: { host, ...headers } });
}

/** The cookie of a browser that came with a ticket. */
async function admitted(): Promise<string> {
  const { json } = await api.call("POST", `/v1/sandboxes/${id}/ports/tickets`, { json: { port } });
  const ticket = json.ticket;
  const { headers } = await ask(`/?dsec-ticket=${ticket}`, {});
  return headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
}

function heard({ bytes }: Answer): { readonly url: string; readonly headers: http.IncomingHttpHeaders } {
  return JSON.parse(bytes.toString());
}

test("every path of the host is the server's, the API's own too", async () => {
  for (const name of [host, `${host.toUpperCase()}:8080`, `${host}.`]) {
    const answer = await ask("/v1/sandboxes?x=%zz", {
      host: name,
      authorization: `Bearer ${api.token}`,
      cookie: "a=b",
    });
    const { url, headers } = heard(answer);
    assert.equal(url, "/v1/sandboxes?x=%zz");
    assert.deepEqual([headers.host, headers.cookie, headers.authorization], [name, "a=b", undefined]);
    assert.equal(headers["x-forwarded-prefix"], undefined);
    assert.equal(answer.headers["content-security-policy"], undefined);
    assert.deepEqual(answer.headers["set-cookie"], ["own=1; Path=/", "wide=1; Path=/"]);
  }
});

test("hosts below the domain that name no port are not found, and never the API", async () => {
  const authorization = `Bearer ${api.token}`;
  for (const name of [DOMAIN, `x.${DOMAIN}`, `80.${DOMAIN}`, `${id}.${DOMAIN}`, `a.${host}`, `80-nope.${DOMAIN}`]) {
    const { status, json } = await ask("/v1/whoami", { host: name, authorization });
    assert.deepEqual([status, json.error.kind], [404, "NotFound"], name);
  }
  assert.equal((await ask("/v1/whoami", { host: `x${DOMAIN}`, authorization })).status, 200);
});

test("a ticket opens the host once, and the cookie it becomes does from then on", async () => {
  const made = await api.call("POST", `/v1/sandboxes/${id}/ports/tickets`, { json: { port } });
  const { ticket } = made.json;
  assert.deepEqual([made.status, made.json.host], [201, host]);
  const entered = await ask(`//page?a=1&dsec-ticket=${ticket}&b=2`, {});
  assert.deepEqual([entered.status, entered.headers.location], [303, "/page?a=1&b=2"]);
  const [cookie = ""] = entered.headers["set-cookie"] ?? [];
  assert.match(cookie, /^__Host-dsec-pass=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Lax$/);
  assert.equal((await ask(`/?dsec-ticket=${ticket}`, {})).status, 401);
  const pass = cookie.split(";")[0] ?? "";
  const { headers } = heard(await ask("/", { cookie: `a=b; ${pass}; c=d`, authorization: "Basic YTpi" }));
  assert.deepEqual([headers.cookie, headers.authorization], ["a=b; c=d", "Basic YTpi"]);
  assert.equal((await ask("/", { cookie: pass, host: `80-${id}.${DOMAIN}` })).status, 401);
  assert.equal((await ask("/", { cookie: `${pass}x` })).status, 401);
  assert.equal((await ask("/", {})).status, 401);
  assert.equal((await send(api.url, "GET", "/v1/whoami", { headers: { cookie: pass } })).status, 401);
});

test("the cookie does not serve pages of other hosts, of the same site either", async () => {
  const cookie = await admitted();
  const refused = [
    { origin: "https://evil.test" },
    { origin: `https://1-${id}.${DOMAIN}` },
    { origin: "null" },
    { "sec-fetch-site": "same-site", "sec-fetch-mode": "cors" },
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" },
    { "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" },
  ];
  for (const headers of refused) {
    const { status, json } = await ask("/", { cookie, ...headers } as Record<string, string>);
    assert.deepEqual([status, json.error.kind], [403, "PermissionDenied"], JSON.stringify(headers));
  }
  const navigation = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
  assert.equal((await ask("/", { cookie, ...navigation }, "POST")).status, 403);
  for (const headers of [{ origin: `https://${host}` }, { "sec-fetch-site": "same-origin" }, navigation]) {
    assert.equal(
      (await ask("/", { cookie, ...headers } as Record<string, string>)).status,
      200,
      JSON.stringify(headers),
    );
  }
});

test("a WebSocket of a page of the host opens with the cookie, one of another page does not", async () => {
  const cookie = await admitted();
  const open = async (origin: string): Promise<number | undefined> => {
    const headers = { host, cookie, origin, connection: "Upgrade", upgrade: "websocket" };
    const request = http.get(`${api.url}/live`, { headers, agent: false });
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    request.on("upgrade", (response, socket) => {
      socket.destroy();
      resolve(response.statusCode);
    });
    request.on("response", (response) => resolve(response.resume().statusCode));
    return promise;
  };
  assert.equal(await open(`https://${host}`), 101);
  assert.equal(await open("https://evil.test"), 403);
});

test("on the host of a port no WebSocket is the API's", async () => {
  const headers = { host, authorization: `Bearer ${api.token}`, connection: "Upgrade", upgrade: "websocket" };
  const request = http.get(`${api.url}/v1/sandboxes/${id}/commands/c-aaaaaaaaaaaa/attach`, { headers, agent: false });
  const [response, socket] = await once(request, "upgrade");
  socket.destroy();
  assert.equal(response.statusMessage, "Switching Protocols");
});

test("a server without a domain has no such hosts and no tickets", async () => {
  await using plain = await rig();
  const own = await plain.sandbox();
  const { status, json } = await plain.call("POST", `/v1/sandboxes/${own}/ports/tickets`, { json: { port: 80 } });
  assert.deepEqual([status, json.error.kind], [412, "FailedPrecondition"]);
  const answer = await plain.call("GET", "/v1/whoami", { headers: { host: `80-${own}.${DOMAIN}` } });
  assert.equal(answer.status, 200);
});
