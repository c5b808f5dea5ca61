/**
 * What the RPC asks of a connection: whole messages, in order, until it closes. A WebSocket is one; `memoryPair` another.
 */
export interface FrameTransport {
  /** Bytes given to `send` that the other side has not been seen to take. */
  readonly bufferedBytes: number;
  /** Sets who is told; called once, before the first `send`. Messages that came earlier are kept and delivered then. */
  listen(listener: TransportListener): void;
  /**
   * Never blocks and never throws; the caller looks at `bufferedBytes`. The bytes belong to the transport until it calls
   * `done`, which it never does when the connection ends first.
   */
  send(frame: Uint8Array, done?: () => void): void;
  /** Safe twice. `closed` follows. */
  close(): void;
}

/** Who hears of a connection. */
export interface TransportListener {
  /** `done`, where there is one, is to be called when the frame's bytes are not looked at any more. */
  message(frame: Uint8Array, done?: () => void): void;
  /** `bufferedBytes` fell; a sender that waited may look again. */
  drained(): void;
  /** The last call, and made exactly once. */
  closed(): void;
}
