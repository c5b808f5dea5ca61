import type { Io } from "./io.ts";

/** Counts items that are done, for a person who waits: one line on stderr that is written over, nothing where that is no terminal. */
export class Progress implements Disposable {
  readonly #io: Io;
  readonly #total: number;
  readonly #isScreen: boolean;
  #done = 0;
  #failed = 0;

  constructor(io: Io, total: number) {
    this.#io = io;
    this.#total = total;
    this.#isScreen = "isTTY" in io.stderr && io.stderr.isTTY === true;
  }

  get failed(): number {
    return this.#failed;
  }

  count(ok: boolean): void {
    this.#done += 1;
    if (!ok) this.#failed += 1;
    const failed = this.#failed === 0 ? "" : `, ${this.#failed} failed`;
    this.#draw(`dsec: ${this.#done} of ${this.#total}${failed}`);
  }

  /** Out of the way of other lines. */
  clear(): void {
    this.#draw("");
  }

  [Symbol.dispose](): void {
    this.clear();
  }

  #draw(text: string): void {
    if (this.#isScreen) this.#io.stderr.write(`\r${text}\x1b[K`);
  }
}
