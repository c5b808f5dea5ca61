import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { connect, isIP } from "node:net";
import type { Duplex } from "node:stream";
import { Worker } from "node:worker_threads";
import { SandboxError } from "#core/errors.ts";
import { isReachable, type OpenNetworks } from "./internal.ts";

/** The only way out of a network namespace without any other: a proxy that connects to the addresses that it has checked. */
export interface Gateway extends AsyncDisposable {
  /** Words before a command line that start it behind the gateway. */
  readonly words: readonly string[];
  /** Variables by which HTTP clients find the gateway. */
  readonly env: Readonly<Record<string, string>>;
  /** Rejects with `PermissionDenied` for a host that leads to internal addresses alone; one that cannot be found is somebody else's matter. */
  check(host: string): Promise<void>;
  /** Why a program behind it failed: an address that it was refused, or else the error itself. */
  explain(error: unknown): unknown;
}

/** In a namespace of its own every port is free. */
export const GATEWAY_PORT = 3128;
/** Of one request that passes through; programs have limits of their own on what stands still. */
const CONNECT_MS = 30_000;
const HOP_HEADERS = /^(connection|keep-alive|proxy-.*|te|trailer|upgrade)$/i;

interface Opened {
  readonly listening: number;
  readonly namespace: number;
}

/**
 * Opens a gateway that refuses addresses of this host and of networks behind it, but for `open`. Names are looked up here, once a connection, and
 * what was checked is what is connected to: a name that changes its meaning gains nothing.
 */
export async function openGateway(open: OpenNetworks): Promise<Gateway> {
  const { listening, namespace } = await makeNamespace();
  const refused = new Set<string>();
  const sockets = new Set<Duplex>();
  const addressOf = async (host: string): Promise<string> => {
    const addresses = isIP(host) === 0 ? (await lookup(host, { all: true })).map(({ address }) => address) : [host];
    const good = addresses.find((address) => isReachable(address, open));
    if (good !== undefined) return good;
    refused.add(host);
    throw internalAddress(host);
  };
  const server = createServer((incoming, response) => void forward(incoming, response, addressOf));
  server.on("connect", (incoming, socket: Duplex) => void tunnel(incoming.url ?? "", socket, { addressOf, sockets }));
  server.on("connection", (socket) => track(sockets, socket));
  server.listen({ fd: listening });
  await once(server, "listening");
  const url = `http://127.0.0.1:${GATEWAY_PORT}`;
  const names = ["http_proxy", "https_proxy", "all_proxy"].flatMap((name) => [name, name.toUpperCase()]);
  return {
    words: ["nsenter", `--net=/proc/${process.pid}/fd/${namespace}`, "--"],
    env: { ...Object.fromEntries(names.map((name) => [name, url])), no_proxy: "", NO_PROXY: "" },
    async check(host) {
      await addressOf(host).catch((error: unknown) => {
        if (error instanceof SandboxError) throw error;
      });
    },
    explain(error) {
      const [host] = refused;
      return host === undefined || !(error instanceof SandboxError) ? error : internalAddress(host, error);
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      closeSync(namespace);
    },
  };
}

/** A thread makes it, so that no other one is ever in it. */
async function makeNamespace(): Promise<Opened> {
  const worker = new Worker(new URL("./gateway-worker.ts", import.meta.url), { trackUnmanagedFds: false });
  const [opened] = (await once(worker, "message")) as [Opened];
  await worker.terminate();
  return opened;
}

async function tunnel(
  target: string,
  socket: Duplex,
  { addressOf, sockets }: { readonly addressOf: (host: string) => Promise<string>; readonly sockets: Set<Duplex> },
): Promise<void> {
  track(sockets, socket);
  try {
    const { hostname, port } = new URL(`tcp://${target}`);
    const host = await addressOf(hostname.replace(/^\[|\]$/g, ""));
    const out = track(sockets, connect({ host, port: Number(port), timeout: CONNECT_MS }));
    await once(out, "connect");
    out.setTimeout(0);
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
    out.pipe(socket).pipe(out);
  } catch (error) {
    socket.end(`HTTP/1.1 ${error instanceof SandboxError ? "403 Forbidden" : "502 Bad Gateway"}\r\n\r\n`);
  }
}

async function forward(
  incoming: IncomingMessage,
  response: ServerResponse,
  addressOf: (host: string) => Promise<string>,
): Promise<void> {
  try {
    const { protocol, hostname, port, pathname, search, host: named } = new URL(incoming.url ?? "");
    if (protocol !== "http:") throw new Error("only plain HTTP is forwarded");
    const host = await addressOf(hostname.replace(/^\[|\]$/g, ""));
    const kept = Object.entries(incoming.headers).filter(([name]) => !HOP_HEADERS.test(name));
    const out = request({
      ...{ host, port: port === "" ? 80 : Number(port), path: pathname + search, method: incoming.method },
      headers: { ...Object.fromEntries(kept), host: named },
      timeout: CONNECT_MS,
      agent: false,
    });
    out.on("timeout", () => out.destroy());
    incoming.pipe(out);
    const [reply] = (await once(out, "response")) as [IncomingMessage];
    const headers = Object.entries(reply.headers).filter(([name]) => !HOP_HEADERS.test(name));
    response.writeHead(reply.statusCode ?? 502, Object.fromEntries(headers));
    reply.pipe(response);
    reply.on("error", () => response.destroy());
  } catch (error) {
    response.writeHead(error instanceof SandboxError ? 403 : 502).end();
  }
}

/** Whatever breaks ends with its other side. */
function track<T extends Duplex>(sockets: Set<Duplex>, socket: T): T {
  if (sockets.has(socket)) return socket;
  sockets.add(socket);
  socket.on("error", () => socket.destroy());
  socket.on("close", () => sockets.delete(socket));
  return socket;
}

function internalAddress(host: string, cause?: unknown): SandboxError {
  return new SandboxError("PermissionDenied", `${host} is an address inside the node's own networks`, {
    ...(cause === undefined ? {} : { cause }),
    hint: "projects fetch from public addresses; an operator opens others with --fetch-networks, and admins may fetch from anywhere",
    details: { host },
  });
}
