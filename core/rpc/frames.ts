import { SandboxError } from "#core/errors.ts";

/** What a call, an answer or one item of a stream carries: a small JSON value and, beside it, bytes that JSON cannot hold. */
export interface Payload {
  readonly head: unknown;
  readonly bytes: Uint8Array;
}

/** Who of a call sent a frame: both sides of a connection may call, and each numbers its own calls. */
export type Side = "caller" | "server";

/** The frames of the wire; `README.md` beside this file draws them. */
export type Frame =
  | {
      readonly type: "call";
      readonly id: number;
      /** Whether items follow from the caller. */
      readonly upload: boolean;
      readonly deadlineMs: number | undefined;
      readonly method: string;
      readonly payload: Payload;
    }
  | { readonly type: "reply"; readonly id: number; readonly payload: Payload }
  | { readonly type: "fail"; readonly id: number; readonly error: unknown }
  | { readonly type: "cancel"; readonly id: number }
  | {
      readonly type: "item";
      readonly id: number;
      readonly from: Side;
      readonly payload: Payload;
      readonly cost: number;
    }
  | { readonly type: "end"; readonly id: number; readonly from: Side }
  | { readonly type: "credit"; readonly id: number; readonly from: Side; readonly bytes: number }
  | { readonly type: "ping" | "pong" };

const TYPES = { call: 1, reply: 2, fail: 3, item: 4, end: 5, cancel: 6, credit: 7, ping: 8, pong: 9 } as const;
const HEADER_BYTES = 8;
const NO_DEADLINE = 0xffff_ffff;
const METHOD_LIMIT = 64;

/** Large enough for a command line of the kernel's two megabytes in base64; small enough to refuse before parsing. */
export const FRAME_LIMIT_BYTES = 4 * 1024 * 1024;
/** Charged for every item on top of its size, so that empty items are not free. */
const ITEM_OVERHEAD_BYTES = 64;
const NO_BYTES = new Uint8Array();

/** CALL: opens a call. Throws `TooLarge`, as all of these, for a frame beyond the limit. */
export function encodeCall(
  id: number,
  method: string,
  payload: Payload,
  options: { readonly upload: boolean; readonly deadlineMs: number | undefined },
): Uint8Array {
  const head = encodeHead(payload.head);
  const name = Buffer.from(method, "latin1");
  const at = HEADER_BYTES + 8;
  const frame = open(TYPES.call, id, at + name.length + head.length + payload.bytes.length);
  frame[1] = options.upload ? 1 : 0;
  frame.writeUInt16LE(name.length, 2);
  frame.writeUInt32LE(options.deadlineMs ?? NO_DEADLINE, 8);
  frame.writeUInt32LE(head.length, 12);
  frame.set(name, at);
  frame.set(head, at + name.length);
  frame.set(payload.bytes, at + name.length + head.length);
  return frame;
}

/** REPLY: the answer that ends a call. */
export function encodeReply(id: number, payload: Payload): Uint8Array {
  return encodePayload(TYPES.reply, id, payload);
}

/** ITEM: one piece of a stream, in a buffer of at least as many bytes as `allocate` is asked for. */
export function encodeItem(
  id: number,
  from: Side,
  payload: Payload,
  allocate: (bytes: number) => Buffer = Buffer.allocUnsafe,
): Uint8Array {
  const frame = encodePayload(TYPES.item, id, payload, allocate);
  frame[1] = sideFlag(from);
  return frame;
}

function encodePayload(
  type: number,
  id: number,
  payload: Payload,
  allocate: (bytes: number) => Buffer = Buffer.allocUnsafe,
): Buffer {
  const head = encodeHead(payload.head);
  const frame = open(type, id, HEADER_BYTES + 4 + head.length + payload.bytes.length, allocate);
  frame.writeUInt32LE(head.length, 8);
  frame.set(head, HEADER_BYTES + 4);
  frame.set(payload.bytes, HEADER_BYTES + 4 + head.length);
  return frame;
}

/** FAIL: the error that ends a call, in its wire form. */
export function encodeFail(id: number, error: unknown): Uint8Array {
  const head = encodeHead(error);
  const frame = open(TYPES.fail, id, HEADER_BYTES + head.length);
  frame.set(head, HEADER_BYTES);
  return frame;
}

/** END: no more items. */
export function encodeEnd(id: number, from: Side): Uint8Array {
  const frame = open(TYPES.end, id, HEADER_BYTES);
  frame[1] = sideFlag(from);
  return frame;
}

/** CANCEL: the caller has stopped waiting. */
export function encodeCancel(id: number): Uint8Array {
  return open(TYPES.cancel, id, HEADER_BYTES);
}

/** PING or PONG. */
export function encodeBeat(type: "ping" | "pong"): Uint8Array {
  return open(TYPES[type], 0, HEADER_BYTES);
}

/** CREDIT: bytes of items that the consumer has taken. */
export function encodeCredit(id: number, from: Side, bytes: number): Uint8Array {
  const frame = open(TYPES.credit, id, HEADER_BYTES + 4);
  frame[1] = sideFlag(from);
  frame.writeUInt32LE(bytes, 8);
  return frame;
}

/** What an item of `frameBytes` takes from the credit of its stream. */
export function costOf(frameBytes: number): number {
  return frameBytes + ITEM_OVERHEAD_BYTES;
}

/** Throws `InvalidArgument` for bytes that are not a frame. The payload's bytes are a view of the frame. */
export function decodeFrame(bytes: Uint8Array): Frame {
  if (bytes.length < HEADER_BYTES || bytes.length > FRAME_LIMIT_BYTES) throw malformed("its size");
  const frame = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const id = frame.readUInt32LE(4);
  switch (frame[0]) {
    case TYPES.call:
      return decodeCall(frame, id);
    case TYPES.reply:
      return { type: "reply", id, payload: decodePayload(frame) };
    case TYPES.item:
      return { type: "item", id, from: sideOf(frame), payload: decodePayload(frame), cost: costOf(frame.length) };
    case TYPES.fail:
      return { type: "fail", id, error: parse(frame.subarray(HEADER_BYTES)) };
    case TYPES.credit:
      if (frame.length !== HEADER_BYTES + 4) throw malformed("a credit's size");
      return { type: "credit", id, from: sideOf(frame), bytes: frame.readUInt32LE(8) };
    case TYPES.end:
      return { type: "end", id, from: sideOf(frame) };
    case TYPES.cancel:
      return { type: "cancel", id };
    case TYPES.ping:
      return { type: "ping" };
    case TYPES.pong:
      return { type: "pong" };
    default:
      throw malformed("its type");
  }
}

function decodeCall(frame: Buffer, id: number): Frame {
  const at = HEADER_BYTES + 8;
  if (frame.length < at) throw malformed("a call's size");
  const nameLength = frame.readUInt16LE(2);
  const deadlineMs = frame.readUInt32LE(8);
  const headLength = frame.readUInt32LE(12);
  const end = at + nameLength + headLength;
  if (nameLength > METHOD_LIMIT || end > frame.length) throw malformed("a call's lengths");
  return {
    type: "call",
    id,
    upload: frame[1] === 1,
    deadlineMs: deadlineMs === NO_DEADLINE ? undefined : deadlineMs,
    method: frame.toString("latin1", at, at + nameLength),
    payload: { head: parse(frame.subarray(at + nameLength, end)), bytes: frame.subarray(end) },
  };
}

function decodePayload(frame: Buffer): Payload {
  if (frame.length < HEADER_BYTES + 4) throw malformed("a payload's size");
  const end = HEADER_BYTES + 4 + frame.readUInt32LE(8);
  if (end > frame.length) throw malformed("a payload's lengths");
  return { head: parse(frame.subarray(HEADER_BYTES + 4, end)), bytes: frame.subarray(end) };
}

function sideFlag(from: Side): number {
  return from === "caller" ? 1 : 0;
}

function sideOf(frame: Buffer): Side {
  return frame[1] === 1 ? "caller" : "server";
}

function open(
  type: number,
  id: number,
  length: number,
  allocate: (bytes: number) => Buffer = Buffer.allocUnsafe,
): Buffer {
  if (length > FRAME_LIMIT_BYTES) {
    throw new SandboxError("TooLarge", `a message of ${length} bytes is longer than the ${FRAME_LIMIT_BYTES} allowed`);
  }
  const frame = allocate(length).subarray(0, length);
  frame.writeUInt32LE(type, 0);
  frame.writeUInt32LE(id, 4);
  return frame;
}

function encodeHead(head: unknown): Uint8Array {
  return head === undefined ? NO_BYTES : Buffer.from(JSON.stringify(head), "utf8");
}

function parse(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (error) {
    throw new SandboxError("InvalidArgument", "a frame's head is not JSON", { cause: error });
  }
}

function malformed(what: string): SandboxError {
  return new SandboxError("InvalidArgument", `a frame is malformed in ${what}`);
}
