import type { FunctionCall } from "#core/functions.ts";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import { type FunctionsRig, functionsOfNode } from "#core/suites/node-functions-suite.ts";
import { serveNode } from "#edge/server.ts";
import { type FunctionsEdge, functionsEdge, scriptCall } from "./edges.ts";

type Reach = (made: FunctionsEdge, opened: AsyncDisposableStack) => Promise<Node>;

async function rigWith(reach: Reach): Promise<FunctionsRig> {
  await using opened = new AsyncDisposableStack();
  const made = opened.use(await functionsEdge());
  const node = await reach(made, opened);
  const closing = opened.move();
  return {
    node,
    call: (code: string, change?: Partial<FunctionCall>) => scriptCall(made.layers, code, change),
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

functionsOfNode("an edge", () => rigWith(async ({ edge }) => edge));

functionsOfNode("an edge over a pair in memory", () =>
  rigWith(async ({ edge }, opened) => {
    const [near, far] = memoryPair();
    serveNode(edge, far);
    return opened.use(new RemoteNode(near));
  }),
);

functionsOfNode("an edge over a WebSocket", () =>
  rigWith(async ({ remote }, opened) => opened.use(await remote()).node),
);
