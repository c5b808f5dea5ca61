import type { Clock } from "#core/clock.ts";
import { asSandboxError, SandboxError, toWire } from "#core/errors.ts";
import { type DeadlineSignal, timeoutError } from "#core/rpc/deadline.ts";
import { encodeCredit, encodeEnd, encodeFail, encodeReply, type Frame, type Payload } from "#core/rpc/frames.ts";
import { Inbox } from "#core/rpc/inbox.ts";
import { Outbox, type OutboxLink } from "#core/rpc/outbox.ts";

/** A call as its server sees it. */
export interface IncomingCall {
  readonly method: string;
  readonly payload: Payload;
  /** Aborts when the caller gives up, its deadline passes or the connection breaks. */
  readonly signal: AbortSignal;
  /** What the caller streams; ends at once when it streams nothing. Leaving it early is fine. */
  readonly upload: AsyncIterableIterator<Payload>;
}

/** Answers a call with one payload or a stream of them. */
export type Serve = (call: IncomingCall) => Promise<Payload> | AsyncIterable<Payload>;

/** Told of a fault of this side: an error that its caller sees as `Internal`, with the causes that stay behind. Never throws. */
export type OnFault = (method: string, error: unknown) => void;

/** One call being served: from its frame to the answer, or to the moment when nobody waits for one any more. */
export class ServedCall {
  readonly #id: number;
  readonly #link: OutboxLink;
  readonly #controller = new AbortController();
  readonly #inbox: Inbox;
  readonly #outbox: Outbox;
  readonly #timer: Disposable | undefined;
  #cancelled = false;

  constructor(frame: Frame & { type: "call" }, link: OutboxLink, clock: Clock) {
    this.#id = frame.id;
    this.#link = link;
    this.#outbox = new Outbox(frame.id, "server", link);
    this.#inbox = new Inbox({ grant: (bytes) => link.send(encodeCredit(frame.id, "server", bytes)) });
    if (!frame.upload) this.#inbox.end();
    if (frame.deadlineMs !== undefined) {
      Object.assign(this.#controller.signal, {
        deadlineAtMs: clock.now() + frame.deadlineMs,
      } satisfies Partial<DeadlineSignal>);
      this.#timer = clock.after(frame.deadlineMs, () => this.#abort(timeoutError()));
    }
  }

  /** Runs the handler and sends its answer. Never rejects. */
  async run(frame: Frame & { type: "call" }, serve: Serve, fault?: OnFault): Promise<void> {
    try {
      const answer = serve({
        method: frame.method,
        payload: frame.payload,
        signal: this.#controller.signal,
        upload: this.#inbox,
      });
      if (Symbol.asyncIterator in answer) {
        if (await this.#outbox.pump(answer)) this.#send(encodeEnd(this.#id, "server"));
      } else {
        this.#send(encodeReply(this.#id, await answer));
      }
    } catch (error) {
      const failure = toWire(error);
      if (failure.kind === "Internal") fault?.(frame.method, error);
      this.#send(encodeFail(this.#id, failure));
    } finally {
      this.#timer?.[Symbol.dispose]();
      void this.#inbox.return();
    }
  }

  /** False when the caller had no credit for it. */
  item(payload: Payload, cost: number, done: (() => void) | undefined): boolean {
    return this.#inbox.push(payload, cost, done);
  }

  endUpload(): void {
    this.#inbox.end();
  }

  credit(bytes: number): boolean {
    return this.#outbox.credit(bytes);
  }

  /** Nobody waits for the answer: the handler is told to stop, and nothing more is sent. */
  cancel(reason: SandboxError): void {
    this.#cancelled = true;
    this.#abort(reason);
  }

  #abort(reason: Error): void {
    this.#controller.abort(reason);
    this.#inbox.end(reason instanceof SandboxError ? reason : asSandboxError(reason));
    if (this.#cancelled) this.#outbox.stop();
  }

  #send(frame: Uint8Array): void {
    if (!this.#cancelled) this.#link.send(frame);
  }
}
