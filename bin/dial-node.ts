import { once } from "node:events";
import WebSocket from "ws";
import { sealedClient } from "#core/rpc/sealed.ts";
import { WEBSOCKET_MAX_PAYLOAD_BYTES } from "#core/rpc/websocket.ts";

/** A node that takes so long to answer is not there. */
const DIAL_MS = 10_000;

/** Opens a connection to the node API at a URL that `listenNode` gave. Rejects when nobody takes it, not with this token, or who takes it does not have that. */
export async function dialNode(url: string, token: string, signal?: AbortSignal): Promise<WebSocket> {
  const socket = new WebSocket(url, {
    ...(url.startsWith("wss:") ? sealedClient(token) : {}),
    headers: { authorization: `Bearer ${token}` },
    handshakeTimeout: DIAL_MS,
    maxPayload: WEBSOCKET_MAX_PAYLOAD_BYTES,
    perMessageDeflate: false,
  });
  try {
    await once(socket, "open", signal && { signal });
    return socket;
  } catch (error) {
    // One that is not open yet tells of its end by an error, which is this one.
    socket.on("error", () => undefined);
    socket.terminate();
    throw error;
  }
}
