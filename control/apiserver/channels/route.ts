import type { WebSocket } from "ws";
import { OPERATIONS } from "#api/index.ts";
import type { ComputerChannel } from "#core/computers.ts";
import type { SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";
import type { PortPiece } from "#core/ports.ts";
import type { Services } from "../handler.ts";
import { pathReader, type UpgradeCall, type UpgradeRoute } from "../upgrade.ts";
import { asksForWebSocket, webSocketsOf } from "../websockets.ts";

/** What noVNC offers; a client that offers its token as a subprotocol must offer this as well. */
const PROTOCOL = "binary";
/** Input that the computer has not taken yet: more is not what a person types or pastes. */
const MOST_WAITING_BYTES = 4 * 1024 * 1024;
/** Closing codes of RFC 6455. */
const [CLOSED, FAILED] = [1000, 1011];

/** A WebSocket whose messages are bytes of one channel of a computer, both ways. What is wrong with the request is told before it is accepted. */
export function channelRoute({ access }: Services, name: "openDisplay" | "openConsole"): UpgradeRoute {
  const read = pathReader(OPERATIONS[name].path);
  const channel: ComputerChannel = name === "openDisplay" ? "display" : "console";
  const sockets = webSocketsOf(PROTOCOL);
  return {
    claims: (request) => asksForWebSocket(request) && read(request.url ?? "") !== undefined,
    async take({ principal, request, socket, head, signal }: UpgradeCall) {
      const { id, node } = await access.reach(principal, read(request.url ?? "")?.id ?? "", signal);
      const opened = await openChannel(node, { id, channel }, signal);
      sockets.handleUpgrade(request, socket, head, (websocket) => void join(websocket, opened));
    },
  };
}

interface OpenChannel {
  readonly pieces: AsyncIterator<PortPiece>;
  readonly incoming: Incoming;
}

/** Resolves when the computer has answered. */
async function openChannel(
  node: Node,
  { id, channel }: { readonly id: SandboxId; readonly channel: ComputerChannel },
  signal: AbortSignal,
): Promise<OpenChannel> {
  const incoming = new Incoming();
  const pieces = node.openChannel(id, channel, incoming, signal)[Symbol.asyncIterator]();
  await pieces.next();
  return { pieces, incoming };
}

/** To the end of either side. Never rejects. */
async function join(websocket: WebSocket, { pieces, incoming }: OpenChannel): Promise<void> {
  // With the default binary type a message is one buffer.
  websocket.on("message", (data) => {
    if (!incoming.push(data as Buffer)) websocket.terminate();
  });
  websocket.on("error", () => websocket.terminate());
  websocket.once("close", () => incoming.end());
  try {
    for (let next = await pieces.next(); next.done !== true && next.value !== "end"; next = await pieces.next()) {
      // The bytes are ours until the next piece is asked for.
      if (typeof next.value !== "string") await send(websocket, next.value);
    }
    websocket.close(CLOSED);
  } catch {
    websocket.close(FAILED, "the computer has ended");
  } finally {
    incoming.end();
    await pieces.return?.().catch(() => undefined);
  }
}

function send(websocket: WebSocket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    websocket.send(bytes, (error) => (error === undefined || error === null ? resolve() : reject(error)));
  });
}

/** Messages of a client, in order. */
class Incoming implements AsyncIterable<Uint8Array> {
  #waiting: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  #wake: () => void = () => undefined;

  /** False when too much waits. */
  push(bytes: Buffer): boolean {
    this.#waiting.push(bytes);
    this.#bytes += bytes.length;
    this.#wake();
    return this.#bytes <= MOST_WAITING_BYTES;
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const bytes = this.#waiting.shift();
      if (bytes !== undefined) {
        this.#bytes -= bytes.length;
        yield bytes;
      } else if (this.#ended) return;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
