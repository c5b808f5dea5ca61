import { asSandboxError, type SandboxError } from "#core/errors.ts";
import type { Payload } from "#core/rpc/frames.ts";
import { Inbox } from "#core/rpc/inbox.ts";
import type { Outbox } from "#core/rpc/outbox.ts";

/** A call this side made and that is not answered yet. Either settles a promise or feeds a stream. */
export class OutgoingCall {
  readonly upload: Outbox | undefined;
  readonly inbox: Inbox | undefined;
  readonly #settle: { resolve(payload: Payload): void; reject(error: SandboxError): void } | undefined;
  readonly #signal: AbortSignal;
  #onAbort: (() => void) | undefined;

  constructor(options: {
    readonly signal: AbortSignal;
    readonly upload: Outbox | undefined;
    readonly answer: Inbox | { resolve(payload: Payload): void; reject(error: SandboxError): void };
    readonly onAbort: (error: SandboxError) => void;
  }) {
    this.upload = options.upload;
    this.inbox = options.answer instanceof Inbox ? options.answer : undefined;
    this.#settle = options.answer instanceof Inbox ? undefined : options.answer;
    this.#signal = options.signal;
    this.#onAbort = () => options.onAbort(asSandboxError(this.#signal.reason));
    this.#signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** The last thing that happens to a call: its answer, the end of its stream, or an error. */
  finish(outcome: { readonly payload?: Payload; readonly error?: SandboxError }): void {
    if (this.#onAbort === undefined) return;
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#onAbort = undefined;
    this.upload?.stop();
    if (outcome.error !== undefined) {
      this.#settle?.reject(outcome.error);
      this.inbox?.end(outcome.error);
      return;
    }
    if (outcome.payload !== undefined) this.#settle?.resolve(outcome.payload);
    this.inbox?.end();
  }
}
