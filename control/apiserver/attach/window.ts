/** How far the output of one stream may run ahead of what a client has acknowledged. */
export class Window {
  readonly #bytes: number;
  /** One past the last byte that was let through, and past the last that came back. */
  #sent: number;
  #acknowledged: number;
  /** Runs of dropped bytes that the client may not have passed yet: they take no room. */
  #gaps: { readonly from: number; readonly to: number }[] = [];
  #wake: (() => void) | undefined;

  /** `bytes` undefined: as far as the connection takes it. */
  constructor(offset: number, bytes: number | undefined) {
    this.#sent = this.#acknowledged = offset;
    this.#bytes = bytes ?? Number.POSITIVE_INFINITY;
  }

  get sent(): number {
    return this.#sent;
  }

  /** What was never sent cannot be acknowledged: such a claim counts as far as it can be true. */
  acknowledge(offset: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(offset, this.#sent));
    this.#gaps = this.#gaps.filter(({ to }) => to > this.#acknowledged);
    this.#wake?.();
  }

  /** Resolves when bytes of that length at `offset` may be sent. Rejects with the signal's reason. One waits at a time. */
  async room(offset: number, length: number, signal: AbortSignal): Promise<void> {
    while (this.#underWay > 0 && this.#underWay + length > this.#bytes) await this.#change(signal);
    if (offset > this.#sent) this.#gaps.push({ from: this.#sent, to: offset });
    this.#sent = offset + length;
  }

  get #underWay(): number {
    const dropped = this.#gaps.reduce((sum, { from, to }) => sum + to - Math.max(from, this.#acknowledged), 0);
    return this.#sent - this.#acknowledged - dropped;
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = () => reject(signal.reason);
      if (signal.aborted) return abort();
      signal.addEventListener("abort", abort, { once: true });
      this.#wake = () => {
        signal.removeEventListener("abort", abort);
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
