import type { Connection } from "./connection.ts";
import { DsecError, errorFromReply, TransportError } from "./errors.ts";
import { type Away, Patience, pause } from "./patience.ts";
import type { Transport, TransportReply, TransportRequest } from "./transport.ts";

/** What every call takes. */
export interface CallOptions {
  /** Gives the call up; the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** The whole call, retries included. The server is told and gives up as well. */
  readonly timeoutMs?: number | undefined;
}

/** A call as the resource files describe it. */
export interface Call extends CallOptions {
  readonly method: TransportRequest["method"];
  readonly path: string;
  /** A list gives the name once for each of its values. */
  readonly query?: Readonly<Record<string, QueryValue | readonly string[] | undefined>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as they are. A stream can be sent once: such a call is never repeated. */
  readonly bytes?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** May the call be made twice? By nature (GET, DELETE, a write at an offset) or by its idempotency key. */
  readonly repeatable?: boolean | undefined;
}

type QueryValue = string | Uint8Array | number | boolean;

/** Who calls, and how stubbornly. */
export interface CallerOptions {
  readonly transport: Transport;
  readonly token: string | undefined;
  /** Attempts after the first for a call that may be repeated. */
  readonly retries: number;
  /** For calls that set no limit of their own. */
  readonly timeoutMs: number;
  /** How long those who follow or wait stay with a server that is away. */
  readonly patienceMs: number;
  readonly onAway?: ((away: Away) => void) | undefined;
  readonly onLimit?: ((limit: TimeLimit) => void) | undefined;
}

/** The time limit of one exchange: what was asked for, and what the server keeps, which may be shorter. Undefined: none. */
export interface TimeLimit {
  readonly method: string;
  readonly path: string;
  readonly askedMs: number | undefined;
  readonly keptMs: number | undefined;
}

/** How much later than the server the client gives up, so that the server's own reason arrives. */
const DEADLINE_SLACK_MS = 1_000;
const FIRST_BACKOFF_MS = 50;
const LONGEST_BACKOFF_MS = 2_000;
/** Replies that are read whole: JSON, errors. More is not from a DSec server. */
const MAX_REPLY_BYTES = 64 * 1024 * 1024;

/** Turns calls into exchanges: token, deadline, retries, JSON, typed errors. */
export class Caller {
  readonly #options: CallerOptions;
  /** Whether any call was answered, by whomever. */
  #isKnown = false;

  constructor(options: CallerOptions) {
    this.#options = options;
  }

  close(): void {
    this.#options.transport.close();
  }

  /** The reply's JSON; undefined when the reply has no body. */
  async json<T>(call: Call): Promise<T> {
    // What streams is limited by its progress, not by a time that a big file would not meet.
    const timeoutMs = call.timeoutMs ?? (sendsStream(call) ? undefined : this.#options.timeoutMs);
    const text = await this.#repeat(call, timeoutMs, async (signal) => {
      const reply = await this.#exchange(call, signal, timeoutMs);
      return new TextDecoder().decode(await readAll(reply));
    });
    return (text === "" ? undefined : parseReply(text)) as T;
  }

  /** The reply at its head; the caller reads its body, which has no limit of time but the signal. */
  open(call: Call): Promise<TransportReply> {
    // The body outlives this call, and so must what bounds it.
    const own = call.timeoutMs === undefined ? undefined : AbortSignal.timeout(call.timeoutMs + DEADLINE_SLACK_MS);
    const signal =
      own === undefined || call.signal === undefined ? (own ?? call.signal) : AbortSignal.any([own, call.signal]);
    return this.#repeat({ ...call, signal }, undefined, (bound) => this.#exchange(call, bound, call.timeoutMs));
  }

  /** For one who follows or waits for something on the server; a limit of the call's own can only be shorter. */
  patience({ signal, timeoutMs = Number.POSITIVE_INFINITY }: CallOptions): Patience {
    const { patienceMs, onAway } = this.#options;
    return new Patience({ limitMs: Math.min(patienceMs, timeoutMs), isKnown: () => this.#isKnown, onAway, signal });
  }

  /** A WebSocket. The token goes as a subprotocol beside the connection's own: a browser can set no header. */
  socket(path: string, query: Call["query"], protocol: string): WebSocket {
    const { transport, token } = this.#options;
    const protocols = token === undefined ? [protocol] : [protocol, `dsec.bearer.${token}`];
    return transport.socket(path + queryText(query), protocols);
  }

  /** Where a path of the API is, for other clients. */
  url(path: string): string {
    return this.#options.transport.url(path);
  }

  /** A plain connection to what is at the path. Never repeated: whoever is there may have seen the first. */
  async connect(path: string, signal: AbortSignal | undefined): Promise<Connection> {
    const { transport, token } = this.#options;
    const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const outcome = await transport.connect({ path, headers, signal });
    if (!("status" in outcome)) return outcome;
    throw await errorOf(outcome);
  }

  async #exchange(call: Call, signal: AbortSignal | undefined, timeoutMs: number | undefined): Promise<TransportReply> {
    const reply = await this.#options.transport.request({
      method: call.method,
      path: call.path + queryText(call.query),
      headers: {
        ...(this.#options.token === undefined ? {} : { authorization: `Bearer ${this.#options.token}` }),
        ...(timeoutMs === undefined ? {} : { "dsec-timeout-ms": String(timeoutMs) }),
        ...(call.json === undefined ? {} : { "content-type": "application/json" }),
        ...(call.bytes === undefined ? {} : { "content-type": "application/octet-stream" }),
        ...call.headers,
      },
      body: call.json === undefined ? call.bytes : new TextEncoder().encode(JSON.stringify(call.json)),
      signal,
    });
    this.#isKnown = true;
    this.#options.onLimit?.({ method: call.method, path: call.path, askedMs: timeoutMs, keptMs: limitIn(reply) });
    if (reply.status >= 200 && reply.status < 300) return reply;
    throw await errorOf(reply);
  }

  async #repeat<T>(
    call: Call,
    timeoutMs: number | undefined,
    attempt: (signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    using limit = deadline(timeoutMs, call.signal);
    const repeatable = !sendsStream(call) && (call.repeatable ?? call.method === "GET");
    for (let failures = 0; ; failures++) {
      try {
        return await attempt(limit.signal);
      } catch (error) {
        if (!repeatable || failures >= this.#options.retries || !worthRepeating(error, failures > 0)) throw error;
        await pause(backoffMs(failures), limit.signal);
      }
    }
  }
}

/** The error that a reply other than a success stands for. */
async function errorOf(reply: TransportReply): Promise<DsecError> {
  const text = new TextDecoder().decode(await readAll(reply));
  reply.discard();
  return errorFromReply(reply.status, text);
}

function limitIn(reply: TransportReply): number | undefined {
  const limit = reply.header("dsec-timeout-ms");
  return limit === undefined ? undefined : Number(limit);
}

function sendsStream(call: Call): boolean {
  return call.bytes !== undefined && !(call.bytes instanceof Uint8Array);
}

/** Where nobody has ever answered nobody is waited for; whoever starts nodes looks at it first. A server that went away may be back soon. */
function worthRepeating(error: unknown, hasAnswered: boolean): boolean {
  if (error instanceof TransportError) return hasAnswered || error.details.refused !== true;
  return error instanceof DsecError && error.kind === "Unavailable";
}

/** Full jitter: clients that failed together do not come back together. */
function backoffMs(failures: number): number {
  return Math.random() * Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 4 ** failures);
}

interface Deadline extends Disposable {
  readonly signal: AbortSignal | undefined;
}

/** A signal that fires with `outer`, or with a typed error after `limitMs`. One timer, gone on disposal. */
function deadline(timeoutMs: number | undefined, outer: AbortSignal | undefined): Deadline {
  if (timeoutMs === undefined) return { signal: outer, [Symbol.dispose]: () => undefined };
  const controller = new AbortController();
  const relay = () => controller.abort(outer?.reason);
  const timer = setTimeout(
    () => controller.abort(new DsecError("DeadlineExceeded", `no answer within ${timeoutMs} ms`)),
    Math.min(timeoutMs + DEADLINE_SLACK_MS, 2 ** 31 - 1),
  );
  if (outer?.aborted) relay();
  else outer?.addEventListener("abort", relay, { once: true });
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      outer?.removeEventListener("abort", relay);
    },
  };
}

/** A whole body, refused beyond what any reply of ours has. */
export async function readAll(reply: TransportReply, limit = MAX_REPLY_BYTES): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of reply.body) {
    size += chunk.byteLength;
    if (size > limit) throw new DsecError("TooLarge", `a reply of more than ${limit} bytes`);
    chunks.push(chunk);
  }
  return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : concat(chunks);
}

/** One array of all the bytes, in order. */
export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.byteLength;
  }
  return whole;
}

function parseReply(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DsecError("Internal", "the server's reply is not JSON", { cause: error });
  }
}

function queryText(query: Call["query"]): string {
  const parts = Object.entries(query ?? {}).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const values: readonly QueryValue[] = Array.isArray(value) ? value : [value as QueryValue];
    return values.map((one) => `${name}=${one instanceof Uint8Array ? encodeBytes(one) : encodeText(name, one)}`);
  });
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}

function encodeText(name: string, value: Exclude<QueryValue, Uint8Array>): string {
  if (typeof value === "string" && !value.isWellFormed()) {
    throw new DsecError("InvalidArgument", `${name} is not valid Unicode`, {
      hint: "give names that are not UTF-8 as bytes",
    });
  }
  return encodeURIComponent(value);
}

/** Percent-encoding of bytes: names in Linux need not be UTF-8. */
function encodeBytes(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) {
    const plain = (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
    text += plain ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0").toUpperCase()}`;
  }
  return text;
}
