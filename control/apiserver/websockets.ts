import type { IncomingMessage } from "node:http";
import { WebSocketServer } from "ws";

/** A message of a client is a piece of input or a short request. */
const MAX_MESSAGE_BYTES = 512 * 1024;

/** Accepts upgrades to WebSockets of one subprotocol; a client that offers its token as one must offer this as well. */
export function webSocketsOf(protocol: string): WebSocketServer {
  return new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
    handleProtocols: (offered) => (offered.has(protocol) ? protocol : false),
  });
}

/** Whether the request is for a WebSocket. */
export function asksForWebSocket({ method, headers }: IncomingMessage): boolean {
  return method === "GET" && headers.upgrade?.toLowerCase() === "websocket";
}
