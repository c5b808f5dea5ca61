import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { type AddressInfo, createServer, type Server, Socket } from "node:net";
import { after, before, test } from "node:test";
import { bridgePort } from "../../test-support/port-bridge.ts";
import { type Rig, rig } from "../../test-support/rig.ts";

let api: Rig;
let root: string;

before(async () => {
  api = await rig();
  api.node.port = bridgePort;
  root = `/v1/sandboxes/${await api.sandbox()}/ports`;
});
after(() => api[Symbol.asyncDispose]());

/** A server that stands for one in a sandbox. */
async function inside(onSocket: (socket: Socket) => void): Promise<Server & { readonly port: number }> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  server.listen({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  return Object.assign(server, { port: (server.address() as AddressInfo).port });
}

type Outcome =
  | { readonly status: number; readonly text: string }
  | { readonly socket: Socket; readonly head: http.IncomingMessage };

async function upgrade(
  path: string,
  headers: http.OutgoingHttpHeaders,
  authorize = true,
  body?: string,
): Promise<Outcome> {
  const token = authorize ? { authorization: `Bearer ${api.token}` } : {};
  const all = { connection: "Upgrade", ...token, ...headers };
  const request = http.request(api.url + root + path, { headers: all, agent: false });
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  request.on("error", reject);
  request.once("upgrade", (head, socket, rest) => {
    assert.ok(socket instanceof Socket);
    socket.allowHalfOpen = true;
    if (rest.length > 0) socket.unshift(rest);
    resolve({ socket, head });
  });
  request.once("response", async (response) => {
    let text = "";
    for await (const chunk of response) text += chunk;
    resolve({ status: response.statusCode ?? 0, text });
  });
  request.end(body);
  return promise;
}

async function raw(port: number): Promise<Socket> {
  const outcome = await upgrade(`/${port}`, { upgrade: "tcp" });
  assert.ok("socket" in outcome, JSON.stringify(outcome));
  return outcome.socket;
}

async function textOf(socket: Socket): Promise<string> {
  let text = "";
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) text += chunk;
  return text;
}

test("a raw connection: the client's end first, and the answer after it", async () => {
  await using server = await inside(async (socket) => socket.end(`heard ${await textOf(socket)}`));
  const socket = await raw(server.port);
  socket.end("all of it");
  assert.equal(await textOf(socket), "heard all of it");
});

test("a raw connection: the server's end first, and what the client sends after it", async () => {
  const heard = Promise.withResolvers<number>();
  await using server = await inside(async (socket) => {
    socket.end("first");
    heard.resolve((await textOf(socket)).length);
  });
  const socket = await raw(server.port);
  assert.equal(await textOf(socket), "first");
  // The client's connection is over at once, and most of this is on its way still.
  socket.end("x".repeat(4_000_000));
  assert.equal(await heard.promise, 4_000_000);
});

test("resets pass in both directions and never look like an end", async () => {
  const outcome = Promise.withResolvers<string>();
  await using server = await inside((socket) => {
    socket.once("error", (error: NodeJS.ErrnoException) => outcome.resolve(error.code ?? ""));
    socket.once("end", () => outcome.resolve("end"));
    socket.once("data", (chunk: Buffer) =>
      chunk.toString() === "reset" ? socket.resetAndDestroy() : socket.write("ok"),
    );
  });
  const one = await raw(server.port);
  one.write("reset");
  await assert.rejects(textOf(one), { code: "ECONNRESET" });
  const two = await raw(server.port);
  two.write("hello");
  await once(two, "data");
  two.resetAndDestroy();
  assert.equal(await outcome.promise, "ECONNRESET");
});

test("nothing is upgraded without a token, where nobody listens, or with a body", async () => {
  const refused = async (outcome: Promise<Outcome>) => {
    const answer = await outcome;
    assert.ok("status" in answer);
    return [answer.status, JSON.parse(answer.text).error.kind];
  };
  await using server = await inside((socket) => socket.destroy());
  const { port } = server;
  assert.deepEqual(await refused(upgrade(`/${port}`, { upgrade: "tcp" }, false)), [401, "Unauthenticated"]);
  const body = { upgrade: "tcp", "content-length": 4 };
  assert.deepEqual(await refused(upgrade(`/${port}`, body, true, "body")), [400, "InvalidArgument"]);
  await new Promise((resolve) => server.close(resolve));
  assert.deepEqual(await refused(upgrade(`/${port}`, { upgrade: "tcp" })), [502, "PortFailed"]);
  assert.deepEqual(await refused(upgrade(`/${port}/`, { upgrade: "websocket" })), [502, "PortFailed"]);
});

test("the handshake of a WebSocket is the server's; the platform's token is no subprotocol of it", async () => {
  let seen: http.IncomingHttpHeaders = {};
  const server = http.createServer();
  server.on("upgrade", (request, socket) => {
    seen = request.headers;
    socket.write(
      "HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: chat\r\nSet-Cookie: a=b\r\n\r\nearly",
    );
    socket.pipe(socket);
  });
  server.listen({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const protocols = `chat, dsec.bearer.${api.token}, superchat`;
  const outcome = await upgrade(
    `/${port}/live?x=1`,
    { upgrade: "websocket", "sec-websocket-protocol": protocols },
    false,
  );
  assert.ok("socket" in outcome);
  assert.deepEqual(
    [seen["sec-websocket-protocol"], seen.upgrade, seen.authorization],
    ["chat, superchat", "websocket", undefined],
  );
  assert.deepEqual(
    [outcome.head.headers["sec-websocket-protocol"], outcome.head.headers["set-cookie"]],
    ["chat", undefined],
  );
  assert.equal(String((await once(outcome.socket, "data"))[0]), "early");
  outcome.socket.write("frame");
  assert.equal(String((await once(outcome.socket, "data"))[0]), "frame");
  outcome.socket.destroy();
  server.closeAllConnections();
  server.close();
});

test("a server that refuses the handshake is heard, and one that agrees to something else is not believed", async () => {
  await using plain = await inside((socket) =>
    socket.resume().end("HTTP/1.1 426 Other\r\nContent-Length: 2\r\n\r\nno"),
  );
  assert.deepEqual(await upgrade(`/${plain.port}/`, { upgrade: "websocket" }), { status: 426, text: "no" });
  await using odd = await inside((socket) => socket.resume().end("HTTP/1.1 101 Yes\r\n\r\n"));
  const outcome = await upgrade(`/${odd.port}/`, { upgrade: "websocket" });
  assert.ok("status" in outcome && outcome.status === 502, JSON.stringify(outcome));
});
