import { bytesText, type Io } from "./io.ts";

/** Between two looks of a person. */
const DRAW_EVERY_MS = 200;

/** Counts bytes that pass, for a person who waits: one line on stderr that is written over, nothing where that is no terminal. */
export class Transferred implements Disposable {
  readonly #io: Io;
  readonly #isScreen: boolean;
  #bytes = 0;
  #drawnAtMs = 0;

  constructor(io: Io) {
    this.#io = io;
    this.#isScreen = "isTTY" in io.stderr && io.stderr.isTTY === true;
  }

  get bytes(): number {
    return this.#bytes;
  }

  async *through(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of source) {
      this.#bytes += chunk.byteLength;
      this.#draw();
      yield chunk;
    }
  }

  /** Out of the way of other lines. */
  clear(): void {
    if (this.#isScreen && this.#drawnAtMs > 0) this.#io.stderr.write("\r\x1b[K");
    this.#drawnAtMs = 0;
  }

  [Symbol.dispose](): void {
    this.clear();
  }

  #draw(): void {
    const nowMs = performance.now();
    if (!this.#isScreen || nowMs - this.#drawnAtMs < DRAW_EVERY_MS) return;
    this.#drawnAtMs = nowMs;
    this.#io.stderr.write(`\rdsec: ${bytesText(this.#bytes)}\x1b[K`);
  }
}
