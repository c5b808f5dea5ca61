import { FRAME_LIMIT_BYTES } from "#core/rpc/frames.ts";
import type { FrameTransport, TransportListener } from "#core/rpc/transport.ts";

/** What is used of a WebSocket of the `ws` package, so that this file needs no import of it. */
export interface WebSocketLike {
  readonly bufferedAmount: number;
  send(data: Uint8Array, done: (error?: Error | null) => void): void;
  close(): void;
  terminate(): void;
  on(event: "message", listener: (data: unknown, isBinary: boolean) => void): unknown;
  on(event: "close", listener: () => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** Give it to both the `ws` server and client as `maxPayload`: longer messages are refused before they are buffered. */
export const WEBSOCKET_MAX_PAYLOAD_BYTES = FRAME_LIMIT_BYTES;
/** Frames a connection may bring before somebody listens. */
const EARLY_LIMIT = 64;

/** An open WebSocket as a transport: one binary message a frame. A text message closes it. */
export function websocketTransport(socket: WebSocketLike): FrameTransport {
  let listener: TransportListener | undefined;
  let early: Uint8Array[] = [];
  let closed = false;
  let told = false;
  const tell = () => {
    if (!closed || told || listener === undefined) return;
    told = true;
    listener.closed();
  };
  socket.on("message", (data, isBinary) => {
    if (!isBinary || !(data instanceof Uint8Array) || early.length >= EARLY_LIMIT) socket.terminate();
    else if (listener === undefined) early.push(data);
    else listener.message(data);
  });
  socket.on("error", () => socket.terminate());
  socket.on("close", () => {
    closed = true;
    tell();
  });
  return {
    get bufferedBytes() {
      return socket.bufferedAmount;
    },
    listen(to) {
      listener = to;
      const frames = early;
      early = [];
      queueMicrotask(() => {
        for (const frame of frames) to.message(frame);
        tell();
      });
    },
    send: (frame, done) =>
      socket.send(frame, () => {
        done?.();
        listener?.drained();
      }),
    close: () => socket.terminate(),
  };
}
