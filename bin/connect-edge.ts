import { randomBytes } from "node:crypto";
import { once } from "node:events";
import WebSocket from "ws";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import { WEBSOCKET_MAX_PAYLOAD_BYTES, websocketTransport } from "#core/rpc/websocket.ts";
import { listenNode } from "#edge/listen.ts";
import { serveNode } from "#edge/server.ts";

/**
 * The edge of this process as the apiserver sees it: behind the framed node API, as an edge of another machine would be. The
 * frames go through memory, or through a WebSocket on a free loopback port that takes no token but this connection's.
 * Disposing ends the connection; the edge goes on.
 */
export async function connectEdge(edge: Node, transport: "memory" | "websocket"): Promise<Node & AsyncDisposable> {
  await using opened = new AsyncDisposableStack();
  const node = opened.use(transport === "memory" ? overMemory(edge) : await overWebSocket(edge, opened));
  const closing = opened.move();
  return Object.assign(node, { [Symbol.asyncDispose]: () => closing.disposeAsync() });
}

function overMemory(edge: Node): RemoteNode {
  const [near, far] = memoryPair();
  serveNode(edge, far);
  return new RemoteNode(near);
}

async function overWebSocket(edge: Node, opened: AsyncDisposableStack): Promise<RemoteNode> {
  const token = randomBytes(32).toString("hex");
  const { url } = opened.use(await listenNode(edge, { host: "127.0.0.1", port: 0, token }));
  const socket = new WebSocket(url, {
    headers: { authorization: `Bearer ${token}` },
    maxPayload: WEBSOCKET_MAX_PAYLOAD_BYTES,
    perMessageDeflate: false,
  });
  await once(socket, "open");
  return new RemoteNode(websocketTransport(socket));
}
