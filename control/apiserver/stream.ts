import type { IncomingMessage, ServerResponse } from "node:http";
import type { OutputEnd, OutputEvent } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { OutputChunk } from "#core/node.ts";
import type { EventForm } from "./event-forms.ts";
import { outputEvents } from "./output-events.ts";
import type { CallScope } from "./scope.ts";

/** A quiet command's reply begins after so long, so that the client knows it was heard. */
const HEAD_AFTER_MS = 25;
/** A stream that says nothing else says so often that it is alive: proxies cut connections that are silent for a minute or less. */
export const BEAT_MS = 15_000;
const BYTES = { "content-type": "application/octet-stream" };

/** The upload of a call as it comes, at the pace of its reader. Throws `Cancelled` when it breaks off. */
export async function* bodyOf(request: IncomingMessage, scope: CallScope): AsyncGenerator<Uint8Array> {
  try {
    // A reader that stops early must not take the connection with it: the reply goes there.
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      scope.progress();
      scope.signal.throwIfAborted();
      yield chunk as Uint8Array;
    }
  } catch (error) {
    if (error instanceof SandboxError) throw error;
    throw new SandboxError("Cancelled", "the upload broke off", { cause: error });
  }
  if (!request.complete) throw new SandboxError("Cancelled", "the upload broke off");
}

/**
 * Sends bytes as they come. Rejects when the source fails before its first byte, and nothing is sent then; later failures
 * break the connection, because a clean end would look like the whole.
 */
export async function sendBytes(
  source: AsyncIterable<Uint8Array>,
  response: ServerResponse,
  scope: CallScope,
  type = "application/octet-stream",
): Promise<void> {
  const chunks = source[Symbol.asyncIterator]();
  let next = await chunks.next();
  response.writeHead(200, { "content-type": type });
  try {
    for (; next.done !== true; next = await chunks.next()) await write(response, next.value, scope);
    response.end();
  } catch {
    response.destroy();
  } finally {
    await chunks.return?.().catch(() => undefined);
  }
}

/**
 * Sends one stretch of a stream without gaps. `X-Dsec-Offset` is the place of its first byte; it may be beyond the one
 * asked for, when bytes there were dropped. The `X-Dsec-End` trailer says why the stretch ends; a reply without the last
 * chunk of its transfer coding broke and says nothing. Rejects as `sendBytes` does.
 */
export async function sendOutput(
  source: AsyncIterable<OutputChunk>,
  asked: { readonly offset: number; readonly follow: boolean },
  response: ServerResponse,
  scope: CallScope,
): Promise<void> {
  const chunks = source[Symbol.asyncIterator]();
  const first = chunks.next();
  const early = await withinMs(first, HEAD_AFTER_MS);
  const offset = early === undefined || early.done === true ? asked.offset : early.value.offset;
  response.writeHead(200, { ...BYTES, "x-dsec-offset": offset, trailer: "X-Dsec-End" });
  if (early === undefined) response.flushHeaders();
  // Not awaited: what led to a reply need not wait in memory for the end of a quiet command.
  void pumpOutput(chunks, first, { offset, follow: asked.follow }, { response, scope });
}

/** The body of such a reply. Never rejects. */
async function pumpOutput(
  chunks: AsyncIterator<OutputChunk>,
  first: Promise<IteratorResult<OutputChunk, unknown>>,
  from: { readonly offset: number; readonly follow: boolean },
  { response, scope }: { readonly response: ServerResponse; readonly scope: CallScope },
): Promise<void> {
  let { offset } = from;
  try {
    let end: OutputEnd = from.follow ? "ended" : "caught-up";
    for (let next = await first; next.done !== true; next = await chunks.next()) {
      if (next.value.offset !== offset) {
        end = "gap";
        break;
      }
      offset += next.value.bytes.byteLength;
      await write(response, next.value.bytes, scope);
    }
    response.addTrailers({ "X-Dsec-End": end });
    response.end();
  } catch {
    response.destroy();
  } finally {
    // Not awaited: a source that waits for its next chunk ends with the call's signal.
    void chunks.return?.().catch(() => undefined);
  }
}

/**
 * Sends an output as lines or events: gaps, the end and failures are values among them. A reader of events that comes back
 * for more after the end is told that there is none: 204 stops it. Rejects as `sendBytes` does.
 */
export async function sendEvents(
  source: AsyncIterable<OutputChunk>,
  asked: { readonly offset: number; readonly follow: boolean; readonly resumed: boolean },
  { form, response, scope }: { readonly form: EventForm; readonly response: ServerResponse; readonly scope: CallScope },
): Promise<void> {
  const chunks = source[Symbol.asyncIterator]();
  const first = chunks.next();
  const early = await withinMs(first, HEAD_AFTER_MS);
  if (asked.resumed && early?.done === true) {
    response.writeHead(204).end();
    return;
  }
  response.writeHead(200, { "content-type": form.mediaType, "cache-control": "no-store" });
  response.flushHeaders();
  const events = outputEvents(startingWith(first, chunks), asked);
  try {
    for (let next = events.next(); ; ) {
      const event = await withinMs(next, BEAT_MS);
      if (event?.done === true) break;
      await write(response, Buffer.from(event === undefined ? form.beat : encoded(form, event.value)), scope);
      if (event !== undefined) next = events.next();
    }
    response.end();
  } catch {
    response.destroy();
  } finally {
    void events.return().catch(() => undefined);
  }
}

async function* startingWith<T>(
  first: Promise<IteratorResult<T, unknown>>,
  rest: AsyncIterator<T>,
): AsyncGenerator<T, void, undefined> {
  try {
    for (let next = await first; next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    void rest.return?.().catch(() => undefined);
  }
}

function encoded(form: EventForm, event: OutputEvent): string {
  if ("data" in event) {
    const { offset, data } = event;
    const size = typeof data === "string" ? Buffer.byteLength(data) : Buffer.byteLength(data.base64, "base64");
    return form.encode(event, offset + size);
  }
  return form.encode(event, "gap" in event ? event.gap.to : "end" in event ? event.offset : undefined);
}

/** Resolves when the bytes have left this process: their buffer is used again then. Rejects when the call has ended. */
export function write(response: ServerResponse, bytes: Uint8Array, scope: CallScope): Promise<void> {
  scope.progress();
  return new Promise((resolve, reject) => {
    const { signal } = scope;
    const abort = () => reject(signal.reason);
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    response.write(bytes, (error) => {
      signal.removeEventListener("abort", abort);
      if (error) reject(error);
      else resolve();
    });
  });
}

/** What the promise resolves to, or undefined when it takes longer. */
export async function withinMs<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(resolve, ms, undefined);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
