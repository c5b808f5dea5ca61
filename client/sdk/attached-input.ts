import { DsecError } from "./errors.ts";

/** What the server takes before it has acknowledged any of it. */
const WINDOW_BYTES = 256 * 1024;
const PIECE_BYTES = 64 * 1024;
const OFFSET_BYTES = 8;

interface Write {
  readonly bytes: Uint8Array;
  /** Undefined until the input was taken. */
  start: number | undefined;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The input of one attachment: every byte is sent once to the sandbox, whatever happens to the connection. */
export class AttachedInput {
  readonly #send: (message: Uint8Array<ArrayBuffer> | string) => void;
  /** Not acknowledged to their end, in order. */
  #writes: Write[] = [];
  #wanted: boolean;
  /** Undefined while the input is not this attachment's. */
  #sent: number | undefined;
  #acknowledged = 0;
  #closing = false;
  #failure: unknown;

  constructor(wanted: boolean, send: (message: Uint8Array<ArrayBuffer> | string) => void) {
    this.#wanted = wanted;
    this.#send = send;
    if (!wanted) this.#failure = new DsecError("FailedPrecondition", "attached without the input");
  }

  /** Whether the next connection is to take the input. */
  get wanted(): boolean {
    return this.#wanted;
  }

  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      this.#writes.push({ bytes, start: undefined, resolve, reject });
      this.#pump();
    });
  }

  close(): void {
    this.#closing = true;
    this.#pump();
  }

  /** The input is this attachment's, from `offset` on: what the sandbox has of it is not sent again. */
  taken(offset: number): void {
    this.#sent = offset;
    this.#acknowledged = offset;
    this.#settle();
    this.#pump();
  }

  acknowledged(offset: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, offset);
    this.#settle();
    this.#pump();
  }

  disconnected(): void {
    this.#sent = undefined;
  }

  /** Another client has it now. */
  lost(): void {
    this.fail(
      new DsecError("FailedPrecondition", "another client has taken the input", {
        hint: "attach again to take it back",
      }),
    );
  }

  /** No more is sent; what was not taken is rejected. */
  fail(error: unknown): void {
    this.#wanted = false;
    this.#sent = undefined;
    this.#failure ??= error;
    const writes = this.#writes;
    this.#writes = [];
    for (const write of writes) write.reject(error);
  }

  #settle(): void {
    for (let first = this.#writes[0]; first?.start !== undefined; first = this.#writes[0]) {
      if (first.start + first.bytes.byteLength > this.#acknowledged) return;
      this.#writes.shift();
      first.resolve();
    }
  }

  #pump(): void {
    if (this.#sent === undefined) return;
    let next = this.#acknowledged;
    for (const write of this.#writes) {
      write.start ??= next;
      next = write.start + write.bytes.byteLength;
      this.#sendPart(write, write.start);
    }
    if (this.#closing && this.#sent >= next) {
      this.#closing = false;
      this.#send(JSON.stringify({ type: "close-input" }));
    }
    this.#settle();
  }

  #sendPart({ bytes }: Write, start: number): void {
    const limit = this.#acknowledged + WINDOW_BYTES;
    for (let at = this.#sent ?? 0; at < start + bytes.byteLength && at < limit; at = this.#sent ?? limit) {
      const end = Math.min(start + bytes.byteLength, limit, at + PIECE_BYTES);
      this.#send(encodeInput(at, bytes.subarray(at - start, end - start)));
      this.#sent = end;
    }
  }
}

function encodeInput(offset: number, bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(OFFSET_BYTES + bytes.byteLength);
  new DataView(message.buffer).setBigUint64(0, BigInt(offset), true);
  message.set(bytes, OFFSET_BYTES);
  return message;
}
