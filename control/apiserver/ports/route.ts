import { type IncomingMessage, ServerResponse, STATUS_CODES } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import type { Services } from "../handler.ts";
import { endConnection } from "../linger.ts";
import type { UpgradeCall, UpgradeRoute } from "../upgrade.ts";
import { type PortAddress, portAddress } from "./address.ts";
import { reachPort } from "./calls.ts";
import { callerOf } from "./door.ts";
import { beginExchange, type Exchange, outcomeOf, passResponse } from "./exchange.ts";
import { pairs, responseHeaders } from "./headers.ts";
import { openPortStream } from "./port-stream.ts";

/** Connections that leave HTTP: to a server in a sandbox that agrees to it (a WebSocket, say), or at once, as raw TCP. */
export function portRoute(services: Pick<Services, "access" | "iam" | "passes" | "portDomain">): UpgradeRoute {
  const addressOf = (request: IncomingMessage): PortAddress => {
    const address = portAddress(request, services.portDomain);
    if (address === undefined) throw new Error("a request that was not claimed");
    return address;
  };
  return {
    claims: (request) => portAddress(request, services.portDomain) !== undefined,
    authenticate: (request) => callerOf(services, request, addressOf(request)),
    async take(call) {
      const { request, socket, signal } = call;
      const address = addressOf(request);
      if (hasBody(request)) {
        throw new SandboxError("InvalidArgument", "a request with a body cannot leave HTTP", {
          hint: "send no Upgrade",
        });
      }
      const target = await reachPort(services, call.principal, address, signal);
      const stream = await openPortStream(target, signal);
      // Once the port is joined to the client, each of them ends the other.
      if (isRaw(request, address)) {
        socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
        join(call, stream, call.head, Buffer.alloc(0));
      } else await shake(call, { request, address, stream, signal, progress: () => undefined });
    },
  };
}

/** `Upgrade: tcp` on the port itself, without a path for a server, opens a plain connection. */
function isRaw({ headers, url }: IncomingMessage, { form, prefix }: PortAddress): boolean {
  return headers.upgrade?.toLowerCase() === "tcp" && form === "path" && url === prefix;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}

/** The handshake with the server: what it agrees to is passed on, and then bytes; what it refuses is passed on as its answer. */
async function shake(call: UpgradeCall, exchange: Exchange): Promise<void> {
  const { request, socket, head } = call;
  const outgoing = beginExchange(exchange, true);
  const outcome = outcomeOf(outgoing, exchange);
  outgoing.end();
  const answer = await outcome;
  const { incoming } = answer;
  if (answer.type === "upgrade") {
    socket.write(agreement(incoming, exchange.address));
    join(call, exchange.stream, head, answer.head);
    return;
  }
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  // Node's type asks for more than the method uses.
  response.assignSocket(socket as Socket);
  await passResponse(incoming, response, exchange);
  endConnection(socket);
}

function agreement(incoming: IncomingMessage, address: PortAddress): string {
  const lines = [...pairs(responseHeaders(incoming, address))].map(([name, value]) => `${name}: ${value}\r\n`);
  const upgrade = incoming.headers.upgrade ?? "";
  return `HTTP/1.1 101 ${STATUS_CODES[101]}\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n${lines.join("")}\r\n`;
}

/** Bytes both ways, each direction to its own end. What breaks on one side breaks the other, and never looks like an end. */
function join({ socket }: UpgradeCall, stream: Duplex, fromClient: Buffer, fromServer: Buffer): void {
  if (fromClient.length > 0) stream.write(fromClient);
  if (fromServer.length > 0) socket.write(fromServer);
  socket.pipe(stream);
  stream.pipe(socket);
  stream.once("error", () => (socket instanceof Socket ? socket.resetAndDestroy() : socket.destroy()));
  // Both ends of the client may have come while bytes are on their way to the server still.
  socket.once("close", () => (socket.readableEnded && socket.writableFinished ? undefined : stream.destroy()));
}
