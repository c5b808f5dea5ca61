import { once } from "node:events";
import WebSocket from "ws";
import { aFakeSpec } from "#backends/fake/spec.ts";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import { websocketTransport } from "#core/rpc/websocket.ts";
import { type NodeRig, nodeContract } from "#core/suites/node-suite.ts";
import { listenNode } from "#edge/listen.ts";
import { serveNode } from "#edge/server.ts";
import { Rig } from "./test-support/rig.ts";

async function rigWith(reach: (rig: Rig, stack: AsyncDisposableStack) => Promise<Node>): Promise<NodeRig> {
  await using stack = new AsyncDisposableStack();
  const rig = stack.use(await Rig.open());
  const node = await reach(rig, stack);
  const moved = stack.move();
  return {
    node,
    spec: () => aFakeSpec(),
    serveEcho: async () => undefined,
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

nodeContract("an edge", () => rigWith(async (rig) => rig.edge));

nodeContract("an edge over a pair in memory", () =>
  rigWith(async (rig, stack) => {
    const [near, far] = memoryPair();
    serveNode(rig.edge, far);
    return stack.use(new RemoteNode(near));
  }),
);

nodeContract("an edge over a WebSocket", () =>
  rigWith(async (rig, stack) => {
    const listener = stack.use(await listenNode(rig.edge, { host: "127.0.0.1", port: 0, token: "secret" }));
    const socket = new WebSocket(listener.url, { headers: { authorization: "Bearer secret" } });
    await once(socket, "open");
    return stack.use(new RemoteNode(websocketTransport(socket)));
  }),
);
