import type { SandboxId } from "#core/ids.ts";
import type { Listener } from "#core/listeners.ts";

/** What a node does with the ports of its sandboxes. A port is reached over the loopback of the sandbox, from inside it. */
export interface NodePorts {
  /**
   * A TCP connection to a port, made at the first `next`; `PortFailed` when nobody takes it. What comes from `incoming` goes in,
   * and its end closes that side. The iterable ends when both sides are closed; a reset by the server throws, and leaving early
   * resets the connection. Bytes either way count as activity, an open connection does not. The bytes of a piece are the
   * reader's until it asks for the next; those of `incoming` must not change before the connection ends.
   */
  openPort(
    id: SandboxId,
    port: number,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncIterable<PortPiece>;
  /** True once somebody listens on the port where `openPort` connects, false when nobody does for `waitMs`. */
  waitForPort(id: SandboxId, port: number, waitMs: number, signal: AbortSignal): Promise<boolean>;
  /** Who listens for TCP connections now. */
  listListeners(id: SandboxId, signal: AbortSignal): Promise<readonly Listener[]>;
}

/** What comes out of a port: `open` once, first; bytes; `end` once, when the server has closed its side. */
export type PortPiece = "open" | Uint8Array | "end";
