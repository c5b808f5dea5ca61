const FIRST = 0x10;
const SECOND = 0x11;

/** What to make of typed bytes. */
export interface Keys {
  readonly send: Uint8Array;
  readonly detach: boolean;
}

/** Finds Ctrl-P Ctrl-Q in what is typed. A Ctrl-P waits for the next key: it may be the first of the two. */
export class DetachKeys {
  #held = false;

  take(bytes: Uint8Array): Keys {
    const send: number[] = [];
    for (const byte of bytes) {
      if (this.#held && byte === SECOND) return { send: Uint8Array.from(send), detach: true };
      if (this.#held) send.push(FIRST);
      this.#held = byte === FIRST;
      if (!this.#held) send.push(byte);
    }
    return { send: Uint8Array.from(send), detach: false };
  }
}
