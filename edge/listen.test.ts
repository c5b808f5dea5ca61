import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import WebSocket from "ws";
import { RemoteNode } from "#core/node-remote.ts";
import { RpcPeer } from "#core/rpc/peer.ts";
import { sealedClient } from "#core/rpc/sealed.ts";
import { websocketTransport } from "#core/rpc/websocket.ts";
import { listenNode } from "#edge/listen.ts";
import { never, Rig } from "./test-support/rig.ts";

const LOOPBACK = { host: "127.0.0.1", port: 0, token: "secret" };

test("a wrong token, no token or another path is refused before anything is said", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const attempts = [
    [listener.url, { authorization: "Bearer wrong" }, 401],
    [listener.url, {}, 401],
    [listener.url.replace(/node$/, "other"), { authorization: "Bearer secret" }, 404],
  ] as const;
  for (const [url, headers, status] of attempts) {
    const socket = new WebSocket(url, { headers });
    const [error] = await once(socket, "error").catch((thrown: unknown) => [thrown]);
    assert.match(String(error), new RegExp(`${status}`));
  }
});

test("one that is cut while it is refused takes nothing else down", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const request = "GET /node HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  for (let n = 0; n < 100; n += 1) {
    const socket = connect(Number(new URL(listener.url).port), "127.0.0.1");
    await once(socket, "connect");
    socket.write(request);
    await new Promise((resolve) => setImmediate(resolve));
    socket.resetAndDestroy();
    await once(socket, "close");
  }
  const socket = new WebSocket(listener.url, { headers: { authorization: "Bearer secret" } });
  await once(socket, "open");
  using node = new RemoteNode(websocketTransport(socket));
  assert.equal((await node.list({}, never)).length, 0);
});

test("a listener ends though some keep their side open that were refused, or never say what they want", async () => {
  await using rig = await Rig.open();
  const listener = await listenNode(rig.edge, LOOPBACK);
  const request = "GET /node HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  const open = async (said: string) => {
    const socket = connect({ port: Number(new URL(listener.url).port), host: "127.0.0.1", allowHalfOpen: true });
    socket.on("error", () => undefined);
    await once(socket, "connect");
    socket.write(said);
    return socket;
  };
  const [turnedAway, silent] = [await open(request), await open("GET /no")];
  const [answer] = await once(turnedAway, "data");
  assert.match(String(answer), /401/);
  await listener[Symbol.asyncDispose]();
  for (const socket of [turnedAway, silent]) socket.destroy();
});

test("those who never say who they are take no more than their share of connections, and others get in when they are gone", {
  timeout: 30_000,
}, async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const port = Number(new URL(listener.url).port);
  let cut = 0;
  const silent = Array.from({ length: 520 }, () =>
    connect(port, "127.0.0.1")
      .on("error", () => undefined)
      .on("close", () => {
        cut += 1;
      }),
  );
  while (cut < 8) await new Promise((resolve) => setImmediate(resolve));
  for (const socket of silent) socket.destroy();
  const headers = { authorization: `Bearer ${LOOPBACK.token}` };
  const open = async (): Promise<WebSocket> => {
    const socket = new WebSocket(listener.url, { headers });
    // The listener hears of their end one after the other.
    return await once(socket, "open").then(() => socket, open);
  };
  using node = new RemoteNode(websocketTransport(await open()));
  assert.equal((await node.list({}, never)).length, 0);
});

test("a port in use is FailedPrecondition", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const port = Number(new URL(listener.url).port);
  await assert.rejects(listenNode(rig.edge, { ...LOOPBACK, port }), { kind: "FailedPrecondition", message: /in use/ });
});

test("a connection of garbage is cut off and others go on", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const open = async () => {
    const socket = new WebSocket(listener.url, { headers: { authorization: "Bearer secret" } });
    await once(socket, "open");
    return socket;
  };
  for (const garbage of [Buffer.from([99, 0, 0, 0]), Buffer.alloc(100, 0xff), "text"]) {
    const bad = await open();
    bad.send(garbage);
    await once(bad, "close");
  }
  using node = new RemoteNode(websocketTransport(await open()));
  assert.equal((await node.list({}, never)).length, 0);
});

test("a method of another release is refused by name", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, LOOPBACK);
  const socket = new WebSocket(listener.url, { headers: { authorization: "Bearer secret" } });
  await once(socket, "open");
  const peer = new RpcPeer(websocketTransport(socket));
  for (const method of ["fly", "constructor", "__proto__"]) {
    await assert.rejects(peer.call(method, { head: [], bytes: new Uint8Array() }, { signal: never }), {
      kind: "InvalidArgument",
      message: new RegExp(method),
    });
  }
  peer.close();
});

test("what is sealed is read and taken by nobody without the token, and those who try take nothing down", async () => {
  await using rig = await Rig.open();
  await using listener = await listenNode(rig.edge, { ...LOOPBACK, sealed: true });
  const port = Number(new URL(listener.url).port);
  const headers = { authorization: `Bearer ${LOOPBACK.token}` };
  // The token of another node, no TLS, TLS as browsers speak it, and one that never says anything.
  const others = [
    () => new WebSocket(listener.url, { headers, ...sealedClient("another") }),
    () => new WebSocket(listener.url.replace("wss", "ws"), { headers }),
    () => new WebSocket(listener.url, { headers, rejectUnauthorized: false }),
  ];
  for (const open of others) await assert.rejects(once(open(), "open"));
  const silent = connect(port, "127.0.0.1");
  silent.on("error", () => undefined);
  await once(silent, "connect");
  // The bearer is asked for inside, too.
  await assert.rejects(once(new WebSocket(listener.url, sealedClient(LOOPBACK.token)), "open"), /401/);
  const socket = new WebSocket(listener.url, { headers, ...sealedClient(LOOPBACK.token) });
  await once(socket, "open");
  using node = new RemoteNode(websocketTransport(socket));
  assert.equal((await node.list({}, never)).length, 0);
  await listener[Symbol.asyncDispose]();
  await node.closed;
});
