import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import type { Node } from "#core/node.ts";
import { listenNode } from "#edge/listen.ts";
import { dialNode } from "./dial-node.ts";

test("who connects to somebody without the token tells it to nobody", async () => {
  let heard = "";
  const thief = createServer((socket) => {
    socket.on("data", (bytes) => {
      heard += bytes.toString("latin1");
    });
    socket.on("error", () => undefined);
    setTimeout(() => socket.destroy(), 200);
  }).listen(0, "127.0.0.1");
  await once(thief, "listening");
  const { port } = thief.address() as AddressInfo;
  await assert.rejects(dialNode(`wss://127.0.0.1:${port}/node`, "a-token-that-nobody-may-hear"));
  assert.ok(heard.length > 0 && !heard.includes("a-token"));
  await using other = await listenNode({} as Node, { host: "127.0.0.1", port: 0, token: "another", sealed: true });
  await assert.rejects(dialNode(other.url, "a-token-that-nobody-may-hear"));
  thief.close();
});
