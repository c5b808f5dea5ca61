import type * as http from "node:http";
import { type Connection, connectionOver } from "./connection.ts";
import { DsecError, TransportError } from "./errors.ts";
import type { Transport, TransportReply, TransportRequest } from "./transport.ts";

/** A body up to this size is sent together with its headers. */
const ONE_PIECE_BYTES = 4_096;

/** What may be said about connections. */
export interface NodeTransportOptions {
  /** Connections at the same time; more requests wait. */
  readonly maxConnections?: number;
  /**
   * PEM text of certificate authorities to trust besides the system's. WebSockets do not take it: for attachments name the
   * file in NODE_EXTRA_CA_CERTS instead.
   */
  readonly ca?: string;
}

/** HTTP/1.1 over kept connections: an order of magnitude less work a call than the global `fetch`. */
export class NodeTransport implements Transport {
  readonly #base: URL;
  readonly #agent: http.Agent;
  readonly #send: typeof http.request;
  #closed = false;

  constructor(url: string, options: NodeTransportOptions = {}) {
    this.#base = parseUrl(url);
    const secure = this.#base.protocol === "https:";
    const agentOptions = { keepAlive: true, noDelay: true, maxSockets: options.maxConnections ?? 512 };
    // Importing these modules by name evaluates every export, a whole WebSocket client among them: 60 ms of a 100 ms program.
    if (secure) {
      const https = process.getBuiltinModule("node:https");
      this.#agent = new https.Agent({ ...agentOptions, ...(options.ca === undefined ? {} : { ca: options.ca }) });
      this.#send = https.request;
    } else {
      const plain = process.getBuiltinModule("node:http");
      this.#agent = new plain.Agent(agentOptions);
      this.#send = plain.request;
    }
  }

  request(request: TransportRequest): Promise<TransportReply> {
    return new Promise((resolve, reject) => {
      const { signal, body } = request;
      if (this.#closed) return reject(new DsecError("Cancelled", "the client is closed", { hint: "make a new one" }));
      if (signal?.aborted) return reject(signal.reason);
      const outgoing = this.#send({
        ...this.#server,
        method: request.method,
        path: request.path,
        headers:
          body instanceof Uint8Array ? { ...request.headers, "content-length": body.byteLength } : request.headers,
      });
      const abort = () => outgoing.destroy();
      signal?.addEventListener("abort", abort, { once: true });
      outgoing.once("close", () => signal?.removeEventListener("abort", abort));
      const fail = (error: unknown) => reject(signal?.aborted ? signal.reason : lost(this.#base, error));
      outgoing.on("error", fail);
      outgoing.once("response", (incoming) => resolve(replyOf(incoming, outgoing, this.#base, signal)));
      if (body === undefined) outgoing.end();
      else if (body instanceof Uint8Array) endWith(outgoing, body);
      else
        pump(body, outgoing).catch((error) => {
          reject(error);
          outgoing.destroy();
        });
    });
  }

  socket(path: string, protocols: readonly string[]): WebSocket {
    if (this.#closed) throw new DsecError("Cancelled", "the client is closed", { hint: "make a new one" });
    const url = new URL(path, this.#base);
    url.protocol = this.#base.protocol === "https:" ? "wss:" : "ws:";
    return new WebSocket(url, [...protocols]);
  }

  url(path: string): string {
    return new URL(path, this.#base).href;
  }

  connect({
    path,
    headers,
    signal,
  }: Pick<TransportRequest, "path" | "headers" | "signal">): Promise<Connection | TransportReply> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new DsecError("Cancelled", "the client is closed", { hint: "make a new one" }));
      if (signal?.aborted) return reject(signal.reason);
      const upgrade = { connection: "Upgrade", upgrade: "tcp" };
      const outgoing = this.#send({ ...this.#server, path, headers: { ...headers, ...upgrade } });
      const abort = () => outgoing.destroy();
      signal?.addEventListener("abort", abort, { once: true });
      outgoing.once("close", () => signal?.removeEventListener("abort", abort));
      outgoing.on("error", (error) => reject(signal?.aborted ? signal.reason : lost(this.#base, error)));
      outgoing.once("response", (incoming) => resolve(replyOf(incoming, outgoing, this.#base, signal)));
      outgoing.once("upgrade", (_incoming, stream, head) => {
        // Connections of HTTP close with their other side; this one is none any more.
        stream.allowHalfOpen = true;
        resolve(connectionOver(stream, head));
      });
      outgoing.end();
    });
  }

  get #server() {
    return {
      agent: this.#agent,
      protocol: this.#base.protocol,
      hostname: this.#base.hostname.replace(/^\[|\]$/g, ""),
      port: this.#base.port,
    };
  }

  close(): void {
    // Whoever reads a stream would connect again, and go on as if nothing had happened.
    this.#closed = true;
    this.#agent.destroy();
  }
}

function parseUrl(url: string): URL {
  const parsed = URL.parse(url);
  if (parsed === null || (parsed.protocol !== "http:" && parsed.protocol !== "https:")) {
    throw new TypeError(`${JSON.stringify(url)} is not an http or https URL`);
  }
  return parsed;
}

/** Sends a stream at the pace of the connection. A source that fails breaks the request: the server must see no clean end. */
async function pump(source: AsyncIterable<Uint8Array>, outgoing: http.ClientRequest): Promise<void> {
  for await (const chunk of source) {
    if (outgoing.destroyed) return;
    if (!outgoing.write(chunk)) await writable(outgoing);
  }
  outgoing.end();
}

function writable(outgoing: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      outgoing.off("drain", settle);
      outgoing.off("close", settle);
      resolve();
    };
    outgoing.on("drain", settle);
    outgoing.on("close", settle);
    if (outgoing.destroyed) settle();
  });
}

function replyOf(
  incoming: http.IncomingMessage,
  outgoing: http.ClientRequest,
  base: URL,
  signal: AbortSignal | undefined,
): TransportReply {
  return {
    status: incoming.statusCode ?? 0,
    header(name) {
      const value = incoming.headers[name];
      return Array.isArray(value) ? value[0] : value;
    },
    trailer: (name) => incoming.trailers[name],
    body: bodyOf(incoming, base, signal),
    discard: () => {
      incoming.destroy();
      outgoing.destroy();
    },
  };
}

/** A small body as text of one character a byte: Node sends that in one piece with the headers, and bytes in one of their own. */
function endWith(outgoing: http.ClientRequest, body: Uint8Array): void {
  if (body.byteLength > ONE_PIECE_BYTES) outgoing.end(body);
  else outgoing.end(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1"), "latin1");
}

async function* bodyOf(
  incoming: http.IncomingMessage,
  base: URL,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of incoming) yield chunk as Buffer;
  } catch (error) {
    throw signal?.aborted ? signal.reason : lost(base, error);
  }
  if (!incoming.complete) throw lost(base, new Error("the reply ended early"));
}

function lost(base: URL, cause: unknown): TransportError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : undefined;
  const refused = code === "ECONNREFUSED" || code === "ENOENT";
  return new TransportError(refused ? `nobody answers at ${base.origin}` : `the connection to ${base.origin} broke`, {
    cause,
    hint: refused ? "is a node up? start one: dsec up" : "try again; what can be repeated was repeated already",
    details: { ...(code === undefined ? {} : { code }), refused },
  });
}
