import * as http from "node:http";
import type { Duplex } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import type { PortAddress } from "./address.ts";
import { passedTrailers, requestHeaders, responseHeaders } from "./headers.ts";

/** Answers before the answer that are passed on; a server could send them for ever. */
const INTERIM_LIMIT = 16;
/** After an exchange the server has so long to close, as it was asked to, before its connection is cut. */
const CLOSE_MS = 1_000;

/** One request on its way to a server in a sandbox. */
export interface Exchange {
  readonly request: http.IncomingMessage;
  readonly address: PortAddress;
  /** The connection to the server, which is used for this request alone. */
  readonly stream: Duplex;
  /** Ends the exchange: the client has left, or nothing moved for too long. */
  readonly signal: AbortSignal;
  /** Told of every piece, either way. */
  progress(): void;
}

/** What the server answers first: a response, or its agreement to leave HTTP, with what it sent after that. */
export type Outcome =
  | { readonly type: "response"; readonly incoming: http.IncomingMessage }
  | { readonly type: "upgrade"; readonly incoming: http.IncomingMessage; readonly head: Buffer };

/** The request as Node sends it over the connection; its body is not sent yet. `upgrade`: it asks to leave HTTP. */
export function beginExchange(exchange: Exchange, upgrade: boolean): http.ClientRequest {
  const { request, address, stream } = exchange;
  try {
    return http.request({
      createConnection: () => stream,
      method: request.method,
      path: address.path,
      headers: requestHeaders(request, address, upgrade),
      setHost: false,
    });
  } catch (error) {
    stream.destroy();
    throw new SandboxError("InvalidArgument", "the request cannot be passed on", { cause: error });
  }
}

/** Resolves with what the server answers. Rejects with `PortFailed` when it breaks off or answers something else than HTTP. */
export function outcomeOf(outgoing: http.ClientRequest, { signal, stream }: Exchange): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      stream.destroy();
      reject(signal.reason);
    };
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    outgoing.once("close", () => signal.removeEventListener("abort", abort));
    outgoing.on("error", (error) => {
      stream.destroy();
      reject(signal.aborted ? signal.reason : failed(error));
    });
    outgoing.once("response", (incoming) => resolve({ type: "response", incoming }));
    outgoing.once("upgrade", (incoming, _stream, head) => resolve({ type: "upgrade", incoming, head }));
  });
}

/** Sends the body of the request, with its trailers, as it comes. What goes wrong shows in the outcome. */
export function sendBody(outgoing: http.ClientRequest, { request, progress }: Exchange): void {
  request.on("data", progress);
  request.pipe(outgoing, { end: false });
  request.once("end", () => {
    if (request.rawTrailers.length > 0) outgoing.addTrailers(passedTrailers(request));
    outgoing.end();
  });
  // The head goes out although nothing of the body may come for long.
  setImmediate(() => outgoing.flushHeaders());
  outgoing.once("close", () => {
    request.unpipe(outgoing);
    // A client that goes on sending would else wait for ever, and its connection with it.
    request.resume();
  });
}

/** Passes answers before the answer, as far as Node can say them. */
export function passInterim(outgoing: http.ClientRequest, response: http.ServerResponse): void {
  let passed = 0;
  outgoing.on("information", ({ statusCode, headers }) => {
    passed += 1;
    if (passed > INTERIM_LIMIT || response.headersSent) return;
    if (statusCode === 100) response.writeContinue();
    else if (statusCode === 102) response.writeProcessing();
    else if (statusCode === 103 && typeof headers.link === "string") passHints(response, headers.link);
  });
}

/**
 * Passes an answer to its end. Resolves then, with true, or with false when it broke off: the client's connection is broken then,
 * for a clean end would look like the whole.
 */
export function passResponse(
  incoming: http.IncomingMessage,
  response: http.ServerResponse,
  exchange: Exchange,
): Promise<boolean> {
  const { stream, progress } = exchange;
  try {
    // What follows an agreement to leave HTTP is no answer, and the client has not asked for it.
    if (incoming.statusCode === 101) throw new Error("an agreement that nobody asked for");
    response.writeHead(incoming.statusCode ?? 502, incoming.statusMessage, responseHeaders(incoming, exchange.address));
  } catch (error) {
    stream.destroy();
    throw failed(error);
  }
  return new Promise((resolve) => {
    let settled = false;
    const settle = (whole: boolean) => {
      if (settled) return;
      settled = true;
      if (!whole) response.destroy();
      closeSoon(stream, whole);
      resolve(whole);
    };
    incoming.on("data", progress);
    incoming.on("error", () => settle(false));
    // A body that lasts until the connection ends is complete for Node however that came about.
    stream.once("error", () => settle(false));
    incoming.once("aborted", () => settle(false));
    incoming.pipe(response, { end: false });
    incoming.once("end", () => {
      if (!incoming.complete) return settle(false);
      if (incoming.rawTrailers.length > 0) response.addTrailers(passedTrailers(incoming));
      response.end(() => settle(true));
    });
    response.once("close", () => settle(response.writableFinished));
    // The head goes out although nothing of the body may come for long.
    setImmediate(() => response.flushHeaders());
  });
}

/** Codes of Node for what it cannot read, or will not write. */
const NOT_HTTP = /^(?:HPE|ERR_HTTP|ERR_INVALID)_/;

/** The error for a server that does not keep to HTTP, or breaks off before it has answered. */
export function failed(cause: unknown): SandboxError {
  if (cause instanceof SandboxError) return cause;
  const code = cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "unknown";
  const what = NOT_HTTP.test(code) ? "does not answer in HTTP/1.1" : "broke off before it answered";
  return new SandboxError("PortFailed", `the server in the sandbox ${what}`, { cause, details: { code } });
}

function passHints(response: http.ServerResponse, link: string): void {
  try {
    response.writeEarlyHints({ link });
  } catch {
    // Hints that Node finds malformed are no loss.
  }
}

function closeSoon(stream: Duplex, whole: boolean): void {
  if (!whole) {
    stream.destroy();
    return;
  }
  stream.resume();
  if (!stream.writableEnded) stream.end();
  const timer = setTimeout(() => stream.destroy(), CLOSE_MS);
  timer.unref();
  stream.once("close", () => clearTimeout(timer));
}
