import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import type { OnFault } from "#core/rpc/serving.ts";
import { websocketTransport } from "#core/rpc/websocket.ts";
import { listenNode } from "#edge/listen.ts";
import { serveNode } from "#edge/server.ts";
import { dialNode } from "./dial-node.ts";

/**
 * The edge of this process as the apiserver sees it: behind the framed node API, as an edge of another machine would be. The
 * frames go through memory, or through a WebSocket on a free loopback port that takes no token but this connection's.
 * Disposing ends the connection; the edge goes on. What the
 * apiserver sees as `Internal` is logged with the causes that stay behind.
 */
export async function connectEdge(
  edge: Node,
  transport: "memory" | "websocket",
  log: Pick<Logger, "error">,
): Promise<Node & AsyncDisposable> {
  const fault: OnFault = (method, err) => log.error({ err, method }, "a call of the node API failed");
  await using opened = new AsyncDisposableStack();
  const node = opened.use(transport === "memory" ? overMemory(edge, fault) : await overWebSocket(edge, fault, opened));
  const closing = opened.move();
  return Object.assign(node, { [Symbol.asyncDispose]: () => closing.disposeAsync() });
}

function overMemory(edge: Node, fault: OnFault): RemoteNode {
  const [near, far] = memoryPair();
  serveNode(edge, far, { fault });
  return new RemoteNode(near);
}

async function overWebSocket(edge: Node, fault: OnFault, opened: AsyncDisposableStack): Promise<RemoteNode> {
  const token = randomBytes(32).toString("hex");
  const { url } = opened.use(await listenNode(edge, { host: "127.0.0.1", port: 0, token, fault }));
  return new RemoteNode(websocketTransport(await dialNode(url, token)));
}
