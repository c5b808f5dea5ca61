import { createHash, timingSafeEqual } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { Node } from "#core/node.ts";
import type { RpcPeer } from "#core/rpc/peer.ts";
import { sealedServer } from "#core/rpc/sealed.ts";
import type { OnFault } from "#core/rpc/serving.ts";
import { WEBSOCKET_MAX_PAYLOAD_BYTES, websocketTransport } from "#core/rpc/websocket.ts";
import { serveNode } from "#edge/server.ts";

/** Connections at a time: a control plane needs a few a copy. */
const CONNECTION_LIMIT = 256;
/** Those included of whom nobody knows yet whether they have the token: without a bound they would take the descriptors that sandboxes need. */
const SOCKET_LIMIT = 2 * CONNECTION_LIMIT;
/** Without a word for so long, a connection is asked whether it still leads somewhere. */
const KEEP_ALIVE_MS = 30_000;

/** A client that was refused and keeps its side open is cut off after so long. */
const LINGER_MS = 5_000;
/** Who connects has so long to show that it has the token. */
const HANDSHAKE_MS = 10_000;

/** Where a node answers. */
export interface NodeListener extends AsyncDisposable {
  /** `ws://host:port/node`, or `wss:` of what is sealed. */
  readonly url: string;
}

interface NodeListenOptions {
  readonly host: string;
  readonly port: number;
  readonly token: string;
  /** With TLS whose key is made of the token: for callers beyond this host. */
  readonly sealed?: boolean;
  readonly fault?: OnFault;
}

/**
 * Serves a node over WebSockets at `/node`, to callers with the token as a bearer. Rejects with `FailedPrecondition` when the
 * port is taken. Disposing cuts every connection.
 */
export async function listenNode(node: Node, options: NodeListenOptions): Promise<NodeListener> {
  const { sealed = false, token } = options;
  const upgradeAlone: http.RequestListener = (_, response) => {
    response.writeHead(426, { Upgrade: "websocket" }).end();
  };
  const server = sealed
    ? https.createServer({ ...sealedServer(token), handshakeTimeout: HANDSHAKE_MS }, upgradeAlone)
    : http.createServer(upgradeAlone);
  server.maxConnections = SOCKET_LIMIT;
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: WEBSOCKET_MAX_PAYLOAD_BYTES,
    perMessageDeflate: false,
  });
  const peers = new Set<RpcPeer>();
  const connections = new Set<Socket>();
  const peerOptions = options.fault === undefined ? {} : { fault: options.fault };
  // A machine that lost its power says no goodbye, and its place is somebody else's some day.
  server.on("connection", (socket: Socket) => {
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  server.on("upgrade", (request: http.IncomingMessage, socket: Duplex, head: Buffer) => {
    // Whoever asked may cut it at any moment; without a listener that would end this process.
    socket.on("error", () => socket.destroy());
    const refusal = refuse(request, token, peers.size);
    if (refusal !== undefined) return turnAway(socket, refusal);
    sockets.handleUpgrade(request, socket, head, (websocket) => {
      const peer = serveNode(node, websocketTransport(websocket), peerOptions);
      peers.add(peer);
      void peer.closed.then(() => peers.delete(peer));
    });
  });
  await listen(server, options);
  const { port } = server.address() as AddressInfo;
  return {
    url: nodeUrl({ host: options.host, port, sealed }),
    async [Symbol.asyncDispose]() {
      for (const peer of peers) peer.close();
      const closed = new Promise((resolve) => server.close(resolve));
      // Also of those who were refused, and who have not said yet what they want.
      for (const socket of connections) socket.destroy();
      await closed;
    },
  };
}

/** Where a node that listens so is reached. */
export function nodeUrl({ host, port, sealed }: Required<Pick<NodeListenOptions, "host" | "port" | "sealed">>): string {
  return `${sealed ? "wss" : "ws"}://${host.includes(":") ? `[${host}]` : host}:${port}/node`;
}

/** Of a connection that left HTTP nobody else would notice that the client keeps its side open. */
function turnAway(socket: Duplex, refusal: string): void {
  socket.resume();
  socket.end(`HTTP/1.1 ${refusal}\r\nConnection: close\r\n\r\n`);
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  timer.unref();
  socket.once("close", () => clearTimeout(timer));
}

function refuse(request: http.IncomingMessage, token: string, connections: number): string | undefined {
  if (request.url !== "/node") return "404 Not Found";
  const given = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
  // Digests have one length, so that the comparison tells nothing of the token's.
  if (!timingSafeEqual(digest(given), digest(token))) return "401 Unauthorized";
  return connections >= CONNECTION_LIMIT ? "503 Service Unavailable" : undefined;
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function listen(server: http.Server, where: { readonly host: string; readonly port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      if (!hasCode(error, "EADDRINUSE")) return reject(error);
      reject(
        new SandboxError("FailedPrecondition", `${where.host}:${where.port} is in use`, {
          hint: "choose another port",
        }),
      );
    });
    server.listen(where.port, where.host, resolve);
  });
}
