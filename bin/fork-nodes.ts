import { readFileSync, statSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import type { Control } from "#control/index.ts";
import { SandboxError } from "#core/errors.ts";
import { type EdgeId, parseEdgeId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import { RemoteNode } from "#core/node-remote.ts";
import { memoryPair } from "#core/rpc/memory-pair.ts";
import type { OnFault } from "#core/rpc/serving.ts";
import { websocketTransport } from "#core/rpc/websocket.ts";
import { listenNode, nodeUrl } from "#edge/listen.ts";
import { type Address, parseAddress } from "./address.ts";
import type { NodeConfig } from "./config.ts";
import { dialNode } from "./dial-node.ts";

/** Between two tries to reach a node, and between two looks whether a connection still leads there. */
const RETRY_MS = 2_000;
const LOOK_MS = 5_000;
/** A node that does not say in so long who it is is tried again. */
const ANSWER_MS = 10_000;
const SHORTEST_TOKEN = 32;

/** A node that takes forks of this server's sandboxes. */
export interface ForkNode extends Address {
  readonly edge: EdgeId;
}

/** What of the settings is about forks on other nodes. */
export type ForkSettings = Pick<NodeConfig, "edge" | "forkListen" | "forkNodes" | "nodeToken">;

/** The nodes that the settings name. Throws `InvalidArgument`. */
export function forkNodesOf({ edge, forkNodes }: ForkSettings): readonly ForkNode[] {
  const nodes = forkNodes
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map((part) => {
      const [, name = "", address = ""] = /^([^=]*)=(.*)$/.exec(part) ?? [];
      return { edge: parseEdgeId(name), ...parseAddress(address, "--fork-nodes") };
    });
  const names = [edge, ...nodes.map((node) => node.edge)];
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice === undefined) return nodes;
  throw new SandboxError("InvalidArgument", `--fork-nodes: two nodes are called ${twice}`, {
    hint: "give each node its own --edge",
  });
}

/** Throws `InvalidArgument` for settings that cannot work, before anything is opened with them. */
export function checkForkSettings(settings: ForkSettings): void {
  const { forkListen, nodeToken } = settings;
  if (forkListen !== undefined) parseAddress(forkListen, "--fork-listen");
  if (forkListen !== undefined || forkNodesOf(settings).length > 0) readToken(settings);
  else if (nodeToken !== undefined) {
    throw new SandboxError(
      "InvalidArgument",
      "--node-token: nobody is shown it without --fork-listen or --fork-nodes",
      {
        hint: "give one of them, or leave it out",
      },
    );
  }
}

/** Lets other servers place forks on this node, if the settings say where they may ask. */
export async function takeForks(
  edge: Node,
  settings: ForkSettings,
  log: Pick<Logger, "error" | "info">,
): Promise<AsyncDisposable> {
  const { forkListen } = settings;
  if (forkListen === undefined) return { [Symbol.asyncDispose]: async () => undefined };
  const fault: OnFault = (method, err) => log.error({ err, method }, "a call of the node API failed");
  const where = parseAddress(forkListen, "--fork-listen");
  const listener = await listenNode(edge, { ...where, token: readToken(settings), sealed: true, fault });
  log.info({ url: listener.url }, "forks of other servers are taken");
  return listener;
}

//   unknown ─► dialled ─► connected ─► broken ─┐    While there is no connection, calls to the node fail as `Unavailable`:
//                 ▲                            │    of what it has nobody says that it is gone.
//                 └────────────────────────────┘

/** Makes the nodes known to a control plane and sees that they stay connected, until it is disposed of. */
export async function joinForkNodes(
  { watcher }: Pick<Control, "watcher">,
  settings: ForkSettings,
  log: Pick<Logger, "warn" | "info">,
): Promise<AsyncDisposable> {
  const nodes = forkNodesOf(settings);
  if (nodes.length === 0) return { [Symbol.asyncDispose]: async () => undefined };
  const token = readToken(settings);
  const closed = new AbortController();
  await Promise.all(nodes.map(({ edge }) => watcher.add(edge, nobody(), "forks")));
  const loops = nodes.map((node) => stayConnected(node, { watcher, token, log, signal: closed.signal }));
  return {
    async [Symbol.asyncDispose]() {
      closed.abort();
      await Promise.all(loops);
    },
  };
}

interface Joining {
  readonly watcher: Control["watcher"];
  readonly token: string;
  readonly log: Pick<Logger, "warn" | "info">;
  readonly signal: AbortSignal;
}

async function stayConnected({ edge, host, port }: ForkNode, { watcher, token, log, signal }: Joining): Promise<void> {
  const url = nodeUrl({ host, port, sealed: true });
  let told = false;
  while (!signal.aborted) {
    try {
      await connected(url, token, signal, async (node) => {
        const { edge: said } = await node.info(AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]));
        // It would say of this one's sandboxes that there are none.
        if (said !== edge) {
          throw new SandboxError("FailedPrecondition", `at ${host}:${port} there is ${said}, not ${edge}`, {
            hint: "name each node with its own address in --fork-nodes",
          });
        }
        log.info({ edge }, "a node that takes forks is connected");
        told = false;
        await watcher.add(edge, node, "forks");
      });
    } catch (err) {
      if (!told && !signal.aborted)
        log.warn({ err, edge }, "a node that takes forks is not reached; it is tried again");
      told = true;
    }
    await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
  }
}

/** Resolves when the connection is gone. */
async function connected(
  url: string,
  token: string,
  signal: AbortSignal,
  use: (node: RemoteNode) => Promise<void>,
): Promise<void> {
  const socket = await dialNode(url, token, signal);
  using node = new RemoteNode(websocketTransport(socket));
  let answered = true;
  socket.on("pong", () => {
    answered = true;
  });
  // A machine that lost its power says no goodbye.
  const looks = setInterval(() => {
    if (!answered) socket.terminate();
    answered = false;
    socket.ping();
  }, LOOK_MS);
  const end = () => socket.terminate();
  signal.addEventListener("abort", end);
  try {
    await use(node);
    await node.closed;
  } finally {
    clearInterval(looks);
    signal.removeEventListener("abort", end);
  }
}

/** The node at the end of a connection that is broken already. */
function nobody(): RemoteNode {
  const [near, far] = memoryPair();
  far.close();
  return new RemoteNode(near);
}

/** What nodes show each other: whoever has it can do with a node whatever its own server can. */
function readToken({ nodeToken }: ForkSettings): string {
  const problem = (what: string, cause?: unknown) =>
    new SandboxError("InvalidArgument", `--node-token: ${what}`, {
      cause,
      hint: `name a file of mode 600 with at least ${SHORTEST_TOKEN} characters, the same for all nodes`,
    });
  if (nodeToken === undefined) throw problem("is needed with --fork-listen and --fork-nodes");
  let token: string;
  try {
    if ((statSync(nodeToken).mode & 0o077) !== 0) throw problem(`${nodeToken} can be read by others than its owner`);
    token = readFileSync(nodeToken, "utf8").trim();
  } catch (error) {
    throw error instanceof SandboxError ? error : problem(`${nodeToken} cannot be read`, error);
  }
  // What goes into headers has no spaces and no control characters.
  if (/^[!-~]+$/.test(token) && token.length >= SHORTEST_TOKEN) return token;
  throw problem(`${nodeToken} holds no such secret`);
}
