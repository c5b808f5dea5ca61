import { BufferPool } from "#core/bytes/buffer-pool.ts";
import { SandboxError } from "#core/errors.ts";

/**
 * The frames between edge and agent as TypeScript sees them. README.md beside this file draws each; guest/agent/frame.h is
 * the same table in C.
 *
 * Decoding copies nothing: the payload of a frame is a view into the chunk it came in, unless chunks cut it.
 */
export const PROTOCOL_VERSION = 1;

/** Types of frames, as README.md draws them: below 64 from the edge, the rest from the agent. */
export const FRAME = {
  hello: 1,
  ping: 2,
  start: 3,
  stdin: 4,
  stdinEof: 5,
  signal: 6,
  ack: 7,
  forget: 8,
  list: 9,
  resize: 10,
  inputAsk: 11,
  welcome: 64,
  pong: 65,
  started: 66,
  startFailed: 67,
  out: 68,
  outEof: 69,
  exit: 70,
  stdinAck: 71,
  task: 72,
  listEnd: 73,
  protocolError: 74,
  inputAt: 75,
} as const;

/** Length, type, flag, a zero and the task's number. */
export const FRAME_HEADER_BYTES = 12;
/** Most bytes of a stream in one frame. */
export const DATA_LIMIT_BYTES = 65_536;
/** Largest START: as much argv and environment as the kernel takes by default. */
export const START_LIMIT_BYTES = 2 * 1024 * 1024;
/** The largest frame an agent ever sends is one of output. */
const AGENT_FRAME_LIMIT_BYTES = FRAME_HEADER_BYTES + 8 + DATA_LIMIT_BYTES;
/** Memory for frames that a read has cut, of all links: each goes back when the rest has come. */
const CUT_FRAMES = new BufferPool(AGENT_FRAME_LIMIT_BYTES);
/** Bytes of the length field, which does not count itself. */
const LENGTH_BYTES = 4;
const NOTHING = Buffer.alloc(0);

/** One frame, taken apart as far as its header. */
export interface Frame {
  readonly type: number;
  readonly flag: number;
  readonly task: number;
  /** A view of the chunk it came in: gone when the frame has been handled. */
  readonly payload: Buffer;
}

/** One frame with room for `size` bytes of payload behind its header. */
export function newFrame(type: number, flag: number, task: number, size: number): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + size);
  frame.writeUInt32LE(FRAME_HEADER_BYTES - LENGTH_BYTES + size, 0);
  frame[4] = type;
  frame[5] = flag;
  frame.writeUInt16LE(0, 6);
  frame.writeUInt32LE(task, 8);
  return frame;
}

/** Writes a byte offset, exact up to 2^53. */
export function putOffset(frame: Buffer, at: number, offset: number): void {
  frame.writeUInt32LE(offset % 2 ** 32, at);
  frame.writeUInt32LE(Math.floor(offset / 2 ** 32), at + 4);
}

/** Reads a 64-bit number. Throws `Internal` beyond what a double holds exactly: no stream is that long. */
export function getOffset(payload: Buffer, at: number): number {
  const value = payload.readUInt32LE(at + 4) * 2 ** 32 + payload.readUInt32LE(at);
  if (value > Number.MAX_SAFE_INTEGER) throw malformed("a number beyond 2^53");
  return value;
}

/** An agent that breaks the protocol: the connection is of no more use. */
export function malformed(what: string): SandboxError {
  return new SandboxError("Internal", `the agent sent ${what}`);
}

/** Smallest payload of each frame an agent sends; the fixed ones have exactly this size. */
const PAYLOAD_BYTES: ReadonlyMap<number, number> = new Map([
  [FRAME.welcome, 32],
  [FRAME.pong, 8],
  [FRAME.started, 4],
  [FRAME.startFailed, 4],
  [FRAME.out, 9],
  [FRAME.outEof, 8],
  [FRAME.exit, 28],
  [FRAME.stdinAck, 8],
  [FRAME.task, 64],
  [FRAME.listEnd, 0],
  [FRAME.protocolError, 4],
  [FRAME.inputAt, 8],
]);

/** Cuts a byte stream into the frames of an agent. Holds at most one incomplete frame. */
export class FrameDecoder {
  readonly #onFrame: (frame: Frame) => void;
  /** Gives the memory of the incomplete frame back. */
  #done: (() => void) | undefined;
  /** The incomplete frame: `#filled` bytes of it are there. Empty when nothing is held. */
  #partial: Buffer = NOTHING;
  #filled = 0;

  constructor(onFrame: (frame: Frame) => void) {
    this.#onFrame = onFrame;
  }

  /** Calls `onFrame` for every frame completed by `chunk`. Throws `Internal` at the first one that no agent sends. */
  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length || this.#filled > 0) {
      if (this.#filled > 0) {
        const taken = this.#fill(chunk, at);
        if (taken === undefined) return;
        at += taken;
        continue;
      }
      const extent = chunk.length - at >= FRAME_HEADER_BYTES ? extentAt(chunk, at) : undefined;
      if (extent === undefined || extent > chunk.length - at) {
        this.#keep(chunk.subarray(at), extent ?? FRAME_HEADER_BYTES);
        return;
      }
      this.#deliver(chunk, at, extent);
      at += extent;
    }
  }

  #keep(rest: Buffer, extent: number): void {
    const { buffer, done } = CUT_FRAMES.take(extent);
    this.#partial = buffer.subarray(0, extent);
    this.#done = done;
    rest.copy(this.#partial);
    this.#filled = rest.length;
  }

  /** Adds to the incomplete frame; the number of bytes used, or `undefined` when it is still incomplete. */
  #fill(chunk: Buffer, at: number): number | undefined {
    const copied = chunk.copy(this.#partial, this.#filled, at);
    this.#filled += copied;
    if (this.#filled < this.#partial.length) return undefined;
    if (this.#partial.length === FRAME_HEADER_BYTES) {
      const extent = extentAt(this.#partial, 0);
      if (extent > FRAME_HEADER_BYTES) {
        this.#keep(this.#partial, extent);
        return copied < chunk.length - at ? copied : undefined;
      }
    }
    const whole = this.#partial;
    const done = this.#done;
    this.#filled = 0;
    this.#partial = NOTHING;
    this.#done = undefined;
    this.#deliver(whole, 0, whole.length);
    done?.();
    return copied;
  }

  #deliver(bytes: Buffer, at: number, extent: number): void {
    this.#onFrame({
      type: bytes[at + 4] ?? 0,
      flag: bytes[at + 5] ?? 0,
      task: bytes.readUInt32LE(at + 8),
      payload: bytes.subarray(at + FRAME_HEADER_BYTES, at + extent),
    });
  }
}

/** Bytes of the frame whose header lies at `at`, checked against what an agent may send. */
function extentAt(bytes: Buffer, at: number): number {
  const extent = LENGTH_BYTES + bytes.readUInt32LE(at);
  const type = bytes[at + 4] ?? 0;
  const least = PAYLOAD_BYTES.get(type);
  if (least === undefined) throw malformed(`a frame of unknown type ${type}`);
  if (bytes.readUInt16LE(at + 6) !== 0) throw malformed("a header that is not ours");
  const size = extent - FRAME_HEADER_BYTES;
  const fits = type === FRAME.out ? size >= least && extent <= AGENT_FRAME_LIMIT_BYTES : size === least;
  if (!fits) throw malformed(`a frame of type ${type} with ${size} bytes`);
  return extent;
}
