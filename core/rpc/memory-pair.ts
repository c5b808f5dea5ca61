import type { FrameTransport, TransportListener } from "#core/rpc/transport.ts";

/** Two ends of a connection inside one process; what one sends the other hears in a later microtask. */
export function memoryPair(): readonly [FrameTransport, FrameTransport] {
  const left = new MemoryEnd();
  const right = new MemoryEnd();
  left.join(right);
  right.join(left);
  return [left, right];
}

/** A frame under way. Both ends look at the same bytes: who receives them says when they are free again. */
interface Parcel {
  readonly frame: Uint8Array;
  readonly done: (() => void) | undefined;
}

class MemoryEnd implements FrameTransport {
  #peer: MemoryEnd | undefined;
  #listener: TransportListener | undefined;
  /** Sent by the peer and not delivered yet. */
  #inbox: Parcel[] = [];
  #inboxBytes = 0;
  #delivering = false;
  #closed = false;

  join(peer: MemoryEnd): void {
    this.#peer = peer;
  }

  get bufferedBytes(): number {
    return this.#peer === undefined ? 0 : this.#peer.#inboxBytes;
  }

  listen(listener: TransportListener): void {
    this.#listener = listener;
    this.#schedule();
  }

  send(frame: Uint8Array, done?: () => void): void {
    const peer = this.#peer;
    if (peer === undefined || this.#closed || peer.#closed) return;
    peer.#inbox.push({ frame, done });
    peer.#inboxBytes += frame.length;
    peer.#schedule();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#inbox = [];
    this.#inboxBytes = 0;
    queueMicrotask(() => this.#listener?.closed());
    this.#peer?.close();
  }

  drained(): void {
    this.#listener?.drained();
  }

  #schedule(): void {
    if (this.#delivering || this.#listener === undefined || this.#inbox.length === 0) return;
    this.#delivering = true;
    queueMicrotask(() => this.#deliver());
  }

  #deliver(): void {
    this.#delivering = false;
    const parcels = this.#inbox;
    this.#inbox = [];
    this.#inboxBytes = 0;
    for (const { frame, done } of parcels) {
      if (this.#closed) return;
      this.#listener?.message(frame, done);
    }
    this.#peer?.drained();
  }
}
