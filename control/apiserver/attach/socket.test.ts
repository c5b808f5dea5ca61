import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { MessageSocket } from "./socket.ts";

test("a client that asks on and on and does not read what it is told is cut off", async () => {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const accepted = once(server, "connection");
  const client = new WebSocket(`ws://127.0.0.1:${address.port}`);
  await once(client, "open");
  client.pause();
  const [one] = await accepted;
  const socket = new MessageSocket(one);
  const ended = once(socket.signal, "abort");
  const body = { error: { kind: "Internal", message: "m".repeat(60_000), retry: "never" } } as const;
  for (let said = 0; said < 1_000 && one.readyState === WebSocket.OPEN; said += 1) {
    socket.tell({ type: "refused", request: "signal", ...body });
  }
  await ended;
  client.terminate();
  server.close();
});
