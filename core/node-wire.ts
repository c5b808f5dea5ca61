import { join, separate } from "#core/concurrency/bulk.ts";
import { EntryDecoder, encodeEntry } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import type { FileDigest } from "#core/files.ts";
import type { CommandId, SandboxId } from "#core/ids.ts";
import type { CommandResult, Node, OutputChunk, StdinWrite } from "#core/node.ts";
import { pack, unpack } from "#core/pack.ts";
import type { PortPiece } from "#core/ports.ts";
import type { Payload } from "#core/rpc/frames.ts";
import type { FileInfo } from "#core/sandbox.ts";

/**
 * How each method of the node API crosses a connection. Arguments travel packed in the head, as a list, without the signal;
 * what is bulk travels as bytes beside it. `download`: the answer is a stream; `upload`: the last argument is one; `duplex`: both.
 */
export const NODE_METHODS = {
  info: "call",
  create: "call",
  inspect: "call",
  list: "call",
  extend: "call",
  pause: "call",
  resume: "call",
  destroy: "call",
  usage: "download",
  startCommand: "call",
  openSession: "call",
  listSessions: "call",
  inspectSession: "call",
  removeSession: "call",
  listCommands: "call",
  waitCommand: "call",
  signalCommand: "call",
  writeStdin: "upload",
  takeInput: "download",
  resizeTerminal: "call",
  readOutput: "download",
  readFile: "download",
  writeFile: "upload",
  listFiles: "download",
  stat: "call",
  changeFile: "call",
  openPort: "duplex",
  waitForPort: "call",
  listListeners: "call",
  readTree: "download",
  writeTree: "upload",
  watchFiles: "download",
  invoke: "duplex",
  startInvocation: "upload",
  waitInvocation: "download",
  dropInvocation: "call",
  packDiff: "call",
  fork: "call",
  computerStatus: "call",
  powerComputer: "call",
  takeScreenshot: "download",
  sendInput: "call",
  openChannel: "duplex",
  resources: "call",
} as const satisfies Record<keyof Node, "call" | "upload" | "download" | "duplex">;

/** The name of a method of the node API. */
export type NodeMethod = keyof typeof NODE_METHODS;

const NO_BYTES = new Uint8Array();
/** An item of the RPC holds 128 KiB with its head; longer pieces of files are cut. */
const PIECE_BYTES = 124 * 1024;

/** A value that is no bulk. */
export function encodeValue(value: unknown): Payload {
  return { head: pack(value), bytes: NO_BYTES };
}

/** What `encodeValue` made. Both ends are built from one `Node` interface; the edge checks what it acts on. */
export function decodeValue<T>(payload: Payload): T {
  return unpack(payload.head) as T;
}

/** Bytes as items that fit the RPC. */
export async function* encodeBytes(source: AsyncIterable<Uint8Array>): AsyncGenerator<Payload, void, undefined> {
  for await (const bytes of source) yield* cut(bytes);
}

function* cut(bytes: Uint8Array): Generator<Payload, void, undefined> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    yield { head: undefined, bytes: bytes.subarray(at, at + PIECE_BYTES) };
  }
}

/** The inverse of `encodeBytes`; cuts may differ. */
export async function* decodeBytes(items: AsyncIterable<Payload>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const item of items) yield item.bytes;
}

/** The bytes of a file as items, and its digest as the head of the last. */
export async function* encodeFile(
  source: AsyncIterable<Uint8Array | FileDigest>,
): AsyncGenerator<Payload, void, undefined> {
  for await (const part of source) {
    if (part instanceof Uint8Array) yield* cut(part);
    else yield encodeValue(part);
  }
}

/** The inverse of `encodeFile`; cuts may differ. */
export async function* decodeFile(
  items: AsyncIterable<Payload>,
): AsyncGenerator<Uint8Array | FileDigest, void, undefined> {
  for await (const item of items) yield item.head === undefined ? item.bytes : decodeValue<FileDigest>(item);
}

/** Batches of entries as items, in the coding of the agent. */
export async function* encodeEntries(
  source: AsyncIterable<readonly FileInfo[]>,
): AsyncGenerator<Payload, void, undefined> {
  for await (const batch of source) yield* cut(Buffer.concat(batch.map(encodeEntry)));
}

/** The inverse of `encodeEntries`; batches may differ. */
export async function* decodeEntries(
  items: AsyncIterable<Payload>,
): AsyncGenerator<readonly FileInfo[], void, undefined> {
  const decoder = new EntryDecoder();
  for await (const item of items) yield decoder.push(item.bytes);
  decoder.end();
}

/** One entry as a value. */
export function encodeInfo(entry: FileInfo): Payload {
  return { head: undefined, bytes: encodeEntry(entry) };
}

/** The inverse of `encodeInfo`. Throws `Internal` for anything else. */
export function decodeInfo(payload: Payload): FileInfo {
  const [entry] = new EntryDecoder().push(payload.bytes);
  if (entry === undefined) throw new SandboxError("Internal", "the node told nothing about a file it has");
  return entry;
}

/** Output chunks as items: the offset is the head. */
export function encodeChunks(source: AsyncIterable<OutputChunk>): AsyncIterable<Payload> {
  return mapped(source, ({ offset, bytes }) => ({ head: offset, bytes }));
}

/** The inverse of `encodeChunks`. */
export function decodeChunks(items: AsyncIterable<Payload>): AsyncIterable<OutputChunk> {
  return mapped(items, ({ head, bytes }) => ({ offset: Number(head), bytes }));
}

/** Each item as `map` makes it. No generator: that would be most of the memory of a stream that waits. */
function mapped<From, To>(source: AsyncIterable<From>, map: (item: From) => To): AsyncIterable<To> {
  return {
    [Symbol.asyncIterator]: () => {
      const items = source[Symbol.asyncIterator]();
      return {
        next: () =>
          items
            .next()
            .then(({ done, value }) =>
              done === true ? { done, value: undefined } : { done: false, value: map(value) },
            ),
        return: async () => {
          await items.return?.();
          return { done: true, value: undefined };
        },
      };
    },
  };
}

/** What comes out of a port as items: bytes, or a word in the head. */
export async function* encodePort(source: AsyncIterable<PortPiece>): AsyncGenerator<Payload, void, undefined> {
  for await (const piece of source) {
    if (typeof piece === "string") yield { head: piece, bytes: NO_BYTES };
    else yield { head: undefined, bytes: piece };
  }
}

/** The inverse of `encodePort`. */
export async function* decodePort(items: AsyncIterable<Payload>): AsyncGenerator<PortPiece, void, undefined> {
  for await (const { head, bytes } of items) yield head === "open" || head === "end" ? head : bytes;
}

/** A started command; the output is one run of bytes, stdout first. */
export function encodeResult(result: CommandResult): Payload {
  const { output } = result;
  if (output === undefined) return { head: { command: pack(result.command) }, bytes: NO_BYTES };
  const head = { command: pack(result.command), stdoutBytes: output.stdout.length };
  return { head, bytes: Buffer.concat([output.stdout, output.stderr]) };
}

/** The inverse of `encodeResult`. */
export function decodeResult(payload: Payload): CommandResult {
  const { command, stdoutBytes } = decodeValue<{ command: CommandResult["command"]; stdoutBytes?: number }>(payload);
  const { bytes } = payload;
  if (stdoutBytes === undefined) return { command, output: undefined };
  return { command, output: { stdout: bytes.subarray(0, stdoutBytes), stderr: bytes.subarray(stdoutBytes) } };
}

/** How long the two runs of bytes are that a value with bytes of any length becomes: its JSON, and its bytes. */
interface BulkHead {
  readonly jsonBytes: number;
  readonly bytes: number;
}

/** A value with bytes of any length in it as items. The first tells the size of all, so that its reader can make room before it takes more. */
export async function* encodeBulk(value: Promise<unknown>): AsyncGenerator<Payload, void, undefined> {
  const { value: plain, bytes } = separate(await value);
  const json = Buffer.from(JSON.stringify(plain));
  const size = bytes.reduce((sum, { length }) => sum + length, 0);
  const head: BulkHead = { jsonBytes: json.length, bytes: size };
  if (json.length + size <= PIECE_BYTES) {
    yield { head, bytes: Buffer.concat([json, ...bytes]) };
    return;
  }
  yield { head, bytes: NO_BYTES };
  for (const each of [json, ...bytes]) yield* cut(each);
}

/**
 * The inverse of `encodeBulk`; takes what it has no room for once `room` has made some. Throws `Internal` when the last item has not come.
 */
export async function decodeBulk<T>(
  items: AsyncIterable<Payload>,
  room: (bytes: number) => Promise<void> = async () => undefined,
): Promise<T> {
  let sizes: BulkHead | undefined;
  let all = Buffer.alloc(0);
  let at = 0;
  // To its end: a stream that is left before is one that is cancelled.
  for await (const { head, bytes } of items) {
    if (sizes === undefined) {
      sizes = head as BulkHead;
      const size = sizes.jsonBytes + sizes.bytes;
      if (bytes.length < size) await room(size);
      all = Buffer.allocUnsafe(size);
    }
    if (at + bytes.length <= all.length) all.set(bytes, at);
    at += bytes.length;
  }
  if (sizes === undefined || at !== all.length) {
    throw new SandboxError("Internal", "an answer of the node was cut short");
  }
  return join(JSON.parse(all.toString("utf8", 0, sizes.jsonBytes)), all.subarray(sizes.jsonBytes)) as T;
}

/** Where input goes; the bytes follow as a stream. */
export type StdinArguments = readonly [SandboxId, CommandId, Omit<StdinWrite, "bytes">];
