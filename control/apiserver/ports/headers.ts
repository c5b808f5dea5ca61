import type { IncomingMessage } from "node:http";
import type { PortAddress } from "./address.ts";

/** Name and value in turns, as Node has them. */
export type RawHeaders = readonly string[];

/** They belong to one connection, not to the message. RFC 9110, 7.6.1, and what older software sends. */
const OF_CONNECTION = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
]);

/** What a client could say of itself and only this server knows. */
const FORWARDED = /^(?:forwarded|x-forwarded-.*|x-real-ip)$/;
/** The server in the sandbox sees the name under which it was called, but not whose token called it. */
const OF_PLATFORM = new Set(["authorization", "cookie", "host", "dsec-timeout-ms", "dsec-forward-authorization"]);

/**
 * What a page of a sandbox could do to the origin of the API, which it shares with every other sandbox: leave cookies, forget those
 * of others, change how the browser gets here.
 */
const OF_ORIGIN = new Set([
  "alt-svc",
  "clear-site-data",
  "nel",
  "report-to",
  "reporting-endpoints",
  "service-worker-allowed",
  "set-cookie",
  "strict-transport-security",
]);
/** A document gets an origin of its own: no storage, no cookies, no call with the rights of the API's origin. */
const SANDBOXED = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

/**
 * The headers for the server in the sandbox. The credential of the platform stays here; what the client sends as
 * `Dsec-Forward-Authorization` is the server's `Authorization`. `upgrade` keeps the wish to leave HTTP.
 */
export function requestHeaders(request: IncomingMessage, address: PortAddress, upgrade: boolean): string[] {
  const named = listedIn(request.headers.connection);
  const headers = ["host", `localhost:${address.port}`];
  for (const [name, value] of pairs(request.rawHeaders)) {
    const key = name.toLowerCase();
    if (key === "dsec-forward-authorization") headers.push("authorization", value);
    if (OF_CONNECTION.has(key) || OF_PLATFORM.has(key) || FORWARDED.test(key)) continue;
    // Who listed these as of the connection would have the body read in another way than it is sent.
    if (named.has(key) && key !== "content-length" && key !== "trailer") continue;
    if (key !== "sec-websocket-protocol") headers.push(name, value);
    else if (withoutToken(value) !== "") headers.push(name, withoutToken(value));
  }
  headers.push("x-forwarded-for", request.socket.remoteAddress ?? "unknown");
  headers.push("x-forwarded-host", request.headers.host ?? "", "x-forwarded-proto", protocolOf(request));
  headers.push("x-forwarded-prefix", address.prefix);
  if (upgrade) headers.push("connection", "Upgrade", "upgrade", request.headers.upgrade ?? "");
  else headers.push("connection", "close", ...framing(request));
  return headers;
}

/** The headers of an answer for the client. */
export function responseHeaders(response: IncomingMessage): string[] {
  const named = listedIn(response.headers.connection);
  const headers: string[] = [];
  for (const [name, value] of pairs(response.rawHeaders)) {
    const key = name.toLowerCase();
    if (OF_CONNECTION.has(key) || OF_ORIGIN.has(key) || key.startsWith("dsec-")) continue;
    if (named.has(key) && key !== "content-length" && key !== "trailer") continue;
    headers.push(name, value);
  }
  headers.push("content-security-policy", SANDBOXED);
  return headers;
}

/** Name and value of each header, or trailer. */
export function* pairs(raw: RawHeaders): Generator<[string, string], void, undefined> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? "", raw[at + 1] ?? ""];
}

/** How the body is told from what follows: as it came, but for a method that has one and says nothing of it. */
function framing(request: IncomingMessage): string[] {
  const { headers, method = "GET" } = request;
  if (headers["transfer-encoding"] !== undefined) return ["transfer-encoding", "chunked"];
  const usual = method === "POST" || method === "PUT" || method === "PATCH";
  return headers["content-length"] === undefined && usual ? ["content-length", "0"] : [];
}

function listedIn(connection: string | undefined): ReadonlySet<string> {
  return new Set((connection ?? "").split(",").map((name) => name.trim().toLowerCase()));
}

/** The subprotocols that are the application's: one of ours carries the platform's token. */
function withoutToken(protocols: string): string {
  return protocols
    .split(",")
    .map((name) => name.trim())
    .filter((name) => !name.startsWith("dsec.bearer."))
    .join(", ");
}

function protocolOf(request: IncomingMessage): string {
  return "encrypted" in request.socket ? "https" : "http";
}
