import type { IncomingMessage } from "node:http";
import type { PortAddress } from "./address.ts";
import { hostOnly, withoutPass } from "./cookies.ts";

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
/** What is said to the platform. */
const OF_PLATFORM = new Set(["dsec-timeout-ms", "dsec-forward-authorization"]);
/** A token of the platform, wherever it stands. */
const TOKEN = /^bearer +dsec_/i;

/**
 * What a page of a sandbox could do to the origin of the API, which it shares with every other sandbox: leave cookies, forget those
 * of others, change how the browser gets here.
 */
const OF_ORIGIN = new Set([
  "alt-svc",
  "nel",
  "report-to",
  "reporting-endpoints",
  "service-worker-allowed",
  "set-cookie",
  "strict-transport-security",
]);
/** What reaches the other hosts of the domain, too, which belong to other sandboxes. */
const OF_SITE = new Set(["clear-site-data"]);
/** A document gets an origin of its own: no storage, no cookies, no call with the rights of the API's origin. */
const SANDBOXED = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

/**
 * The headers for the server in the sandbox. The credential of the platform stays here; what the client sends as
 * `Dsec-Forward-Authorization` is the server's `Authorization`. `upgrade` keeps the wish to leave HTTP.
 */
export function requestHeaders(request: IncomingMessage, address: PortAddress, upgrade: boolean): string[] {
  const named = listedIn(request.headers.connection);
  const headers = ["host", address.form === "path" ? `localhost:${address.port}` : (request.headers.host ?? "")];
  for (const [name, value] of pairs(request.rawHeaders)) {
    const key = name.toLowerCase();
    if (key === "dsec-forward-authorization") headers.push("authorization", value);
    if (OF_CONNECTION.has(key) || OF_PLATFORM.has(key) || FORWARDED.test(key)) continue;
    // Who listed these as of the connection would have the body read in another way than it is sent.
    if (named.has(key) && key !== "content-length" && key !== "trailer") continue;
    const own = ownValue(key, value, address.form);
    if (own !== undefined) headers.push(name, own);
  }
  headers.push("x-forwarded-for", request.socket.remoteAddress ?? "unknown");
  headers.push("x-forwarded-host", request.headers.host ?? "", "x-forwarded-proto", protocolOf(request));
  if (address.prefix !== "") headers.push("x-forwarded-prefix", address.prefix);
  if (upgrade) headers.push("connection", "Upgrade", "upgrade", request.headers.upgrade ?? "");
  else headers.push("connection", "close", ...framing(request));
  return headers;
}

/** What of a header is the application's; undefined: nothing. The origin of the API has no cookies of applications. */
function ownValue(key: string, value: string, form: PortAddress["form"]): string | undefined {
  switch (key) {
    case "host":
      return undefined;
    case "authorization":
      return form === "path" || TOKEN.test(value) ? undefined : value;
    case "cookie":
      return form === "path" ? undefined : withoutPass(value);
    case "sec-websocket-protocol":
      return withoutToken(value) || undefined;
    default:
      return value;
  }
}

/** The headers of an answer for the client. */
export function responseHeaders(response: IncomingMessage, { form }: PortAddress): string[] {
  const named = listedIn(response.headers.connection);
  const headers: string[] = [];
  for (const [name, value] of pairs(response.rawHeaders)) {
    const key = name.toLowerCase();
    if (OF_CONNECTION.has(key) || key.startsWith("dsec-") || OF_SITE.has(key)) continue;
    if (form === "path" && OF_ORIGIN.has(key)) continue;
    if (named.has(key) && key !== "content-length" && key !== "trailer") continue;
    headers.push(name, key === "set-cookie" ? hostOnly(value) : value);
  }
  if (form === "path") headers.push("content-security-policy", SANDBOXED);
  return headers;
}

/** What may not come as a trailer: what each side says of itself in the head, and what frames the message. */
const NO_TRAILER = new Set([
  ...OF_CONNECTION,
  ...OF_ORIGIN,
  ...OF_SITE,
  "authorization",
  "content-length",
  "cookie",
  "host",
  "trailer",
]);

/** The trailers that are the application's, either way. */
export function passedTrailers({ rawTrailers }: Pick<IncomingMessage, "rawTrailers">): [string, string][] {
  return [...pairs(rawTrailers)].filter(([name]) => {
    const key = name.toLowerCase();
    return !NO_TRAILER.has(key) && !FORWARDED.test(key) && !key.startsWith("dsec-");
  });
}

/** Name and value of each header. */
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
