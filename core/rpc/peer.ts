import { BufferPool } from "#core/bytes/buffer-pool.ts";
import { type Clock, systemClock } from "#core/clock.ts";
import {
  asSandboxError,
  ERROR_KINDS,
  type ErrorDetails,
  type ErrorKind,
  fromWire,
  SandboxError,
  toWire,
  type WireError,
} from "#core/errors.ts";
import { deadlineOf } from "#core/rpc/deadline.ts";
import {
  decodeFrame,
  encodeBeat,
  encodeCall,
  encodeCancel,
  encodeCredit,
  encodeEnd,
  encodeFail,
  type Frame,
  type Payload,
} from "#core/rpc/frames.ts";
import { Heartbeat } from "#core/rpc/heartbeat.ts";
import { Inbox } from "#core/rpc/inbox.ts";
import { ITEM_LIMIT_BYTES, Outbox, type OutboxLink } from "#core/rpc/outbox.ts";
import { OutgoingCall } from "#core/rpc/outgoing.ts";
import { type OnFault, type Serve, ServedCall } from "#core/rpc/serving.ts";
import type { FrameTransport } from "#core/rpc/transport.ts";

/** Calls one side may have open at the other; more are refused with `Unavailable`. Each holds at most one stream window. */
const CALL_LIMIT = 4096;
/** Streams pause while more than this waits to be sent, and the connection is given up at eight times as much. */
const CONGESTED_BYTES = 8 * 1024 * 1024;
const HOPELESS_BYTES = 8 * CONGESTED_BYTES;
const ID_END = 2 ** 32;

/** How one end of a connection behaves. */
export interface RpcOptions {
  /** Absent: this side only calls. */
  readonly serve?: Serve;
  readonly fault?: OnFault;
  readonly clock?: Clock;
  /** A peer that stays silent for four of these is dead. */
  readonly heartbeatMs?: number;
}

/** What goes with a call: its end, and what it streams. */
export interface CallOptions {
  readonly signal: AbortSignal;
  readonly upload?: AsyncIterable<Payload>;
}

type Answer = Inbox | { resolve(payload: Payload): void; reject(error: SandboxError): void };

/**
 * One end of a connection on which both sides may call. Calls are concurrent and answered in any order; a broken connection
 * fails every open one with `Unavailable`, for whether the other side acted cannot be known. A peer that breaks the
 * protocol is cut off: nothing it can send makes this side hold more than the limits named here.
 */
export class RpcPeer implements OutboxLink {
  /** Resolves when the connection is gone. */
  readonly closed: Promise<void>;
  readonly frames = new BufferPool(ITEM_LIMIT_BYTES);
  readonly #transport: FrameTransport;
  readonly #serve: Serve | undefined;
  readonly #fault: OnFault | undefined;
  readonly #clock: Clock;
  readonly #heartbeat: Heartbeat;
  readonly #outgoing = new Map<number, OutgoingCall>();
  readonly #served = new Map<number, ServedCall>();
  readonly #resolveClosed: () => void;
  #nextId = 1;
  /** Highest id the peer has used: what is above it can belong to no call, ended or not. */
  #seenId = 0;
  #waiters: (() => void)[] = [];
  #failure: SandboxError | undefined;

  constructor(transport: FrameTransport, options: RpcOptions = {}) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#transport = transport;
    this.#serve = options.serve;
    this.#fault = options.fault;
    this.#clock = options.clock ?? systemClock;
    this.#heartbeat = new Heartbeat(this.#clock, options.heartbeatMs ?? 5_000, {
      ping: () => this.send(encodeBeat("ping")),
      dead: () => this.#fail(unavailable("the other side has fallen silent")),
    });
    transport.listen({
      message: (bytes, done) => this.#receive(bytes, done),
      drained: () => this.#drained(),
      closed: () => this.#fail(unavailable("the connection broke")),
    });
  }

  /** Resolves with the answer; rejects with the server's typed error, or `Unavailable` when the connection breaks. */
  call(method: string, payload: Payload, options: CallOptions): Promise<Payload> {
    return new Promise((resolve, reject) => {
      this.#start(this.#newId(), method, payload, options, { resolve, reject });
    });
  }

  /**
   * The answer's items as they come; the bytes of each are the consumer's until it asks for the next. The call is made when
   * the first is asked for, and cancelled when the consumer leaves.
   */
  stream(method: string, payload: Payload, options: CallOptions): AsyncIterableIterator<Payload, undefined> {
    const id = this.#newId();
    const inbox = new Inbox({
      begin: () => {
        try {
          this.#start(id, method, payload, options, inbox);
        } catch (error) {
          inbox.end(asSandboxError(error));
        }
      },
      grant: (bytes) => this.send(encodeCredit(id, "caller", bytes)),
      stop: () => this.#giveUp(id, new SandboxError("Cancelled", "the consumer left")),
    });
    return inbox;
  }

  close(): void {
    this.#fail(unavailable("the connection was closed"));
  }

  /** For streams: puts a frame on the connection unless it is gone. */
  send(frame: Uint8Array, done?: () => void): void {
    if (this.#failure !== undefined) return;
    if (this.#transport.bufferedBytes > HOPELESS_BYTES) {
      this.#fail(unavailable("the other side does not take what it asked for"));
      return;
    }
    this.#transport.send(frame, done);
  }

  /** For streams: undefined when the connection can take more now. */
  ready(): Promise<void> | undefined {
    if (this.#failure !== undefined || this.#transport.bufferedBytes < CONGESTED_BYTES) return undefined;
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #start(id: number, method: string, payload: Payload, options: CallOptions, answer: Answer): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (options.signal.aborted) throw asSandboxError(options.signal.reason);
    const deadlineAtMs = deadlineOf(options.signal);
    const frame = encodeCall(id, method, payload, {
      upload: options.upload !== undefined,
      deadlineMs: deadlineAtMs === undefined ? undefined : Math.max(0, Math.ceil(deadlineAtMs - this.#clock.now())),
    });
    const upload = options.upload === undefined ? undefined : new Outbox(id, "caller", this);
    const onAbort = (error: SandboxError) => this.#giveUp(id, error);
    this.#outgoing.set(id, new OutgoingCall({ signal: options.signal, upload, answer, onAbort }));
    this.send(frame);
    if (upload !== undefined && options.upload !== undefined) void this.#pump(id, upload, options.upload);
  }

  async #pump(id: number, outbox: Outbox, items: AsyncIterable<Payload>): Promise<void> {
    try {
      if (await outbox.pump(items)) this.send(encodeEnd(id, "caller"));
    } catch (error) {
      this.#giveUp(id, asSandboxError(error));
    }
  }

  #newId(): number {
    const id = this.#nextId;
    // Ids never repeat on one connection: at a million calls a second they would last for an hour, and then it is renewed.
    if (id >= ID_END - 1) this.#fail(unavailable("the connection has used up its call ids"));
    this.#nextId += 1;
    return id;
  }

  #giveUp(id: number, error: SandboxError): void {
    const call = this.#outgoing.get(id);
    if (call === undefined) return;
    this.#outgoing.delete(id);
    this.send(encodeCancel(id));
    call.finish({ error });
  }

  #receive(bytes: Uint8Array, done: (() => void) | undefined): void {
    if (this.#failure !== undefined) return;
    this.#heartbeat.heard();
    try {
      this.#dispatch(decodeFrame(bytes), done);
    } catch (error) {
      this.#fail(new SandboxError("Unavailable", "the other side broke the protocol", { cause: error }));
    }
  }

  #dispatch(frame: Frame, done: (() => void) | undefined): void {
    switch (frame.type) {
      case "call":
        this.#serveCall(frame);
        break;
      case "reply":
        this.#finish(frame.id, { payload: frame.payload });
        break;
      case "fail":
        this.#finish(frame.id, { error: fromWire(asWireError(frame.error)) });
        break;
      case "item":
        this.#item(frame, done);
        break;
      case "end":
        if (frame.from === "caller") this.#served.get(frame.id)?.endUpload();
        else this.#finish(frame.id, {});
        break;
      case "cancel":
        this.#served.get(frame.id)?.cancel(new SandboxError("Cancelled", "the caller gave up"));
        break;
      case "credit":
        this.#credit(frame);
        break;
      case "ping":
        this.send(encodeBeat("pong"));
        break;
      case "pong":
        break;
    }
  }

  #serveCall(frame: Frame & { type: "call" }): void {
    if (frame.id <= this.#seenId) throw new Error("a call id was used twice");
    this.#seenId = frame.id;
    if (this.#serve === undefined) {
      this.send(encodeFail(frame.id, toWire(new SandboxError("InvalidArgument", "this side takes no calls"))));
      return;
    }
    if (this.#served.size >= CALL_LIMIT) {
      const error = unavailable(`more than ${CALL_LIMIT} calls are open on this connection`);
      this.send(encodeFail(frame.id, toWire(error)));
      return;
    }
    const call = new ServedCall(frame, this, this.#clock);
    this.#served.set(frame.id, call);
    void call.run(frame, this.#serve, this.#fault).then(() => this.#served.delete(frame.id));
  }

  #item(frame: Frame & { type: "item" }, done: (() => void) | undefined): void {
    const taken =
      frame.from === "caller"
        ? this.#served.get(frame.id)?.item(frame.payload, frame.cost, done)
        : this.#outgoing.get(frame.id)?.inbox?.push(frame.payload, frame.cost, done);
    if (taken === false) throw new Error("an item came without credit");
  }

  #credit(frame: Frame & { type: "credit" }): void {
    const sane =
      frame.from === "caller"
        ? this.#served.get(frame.id)?.credit(frame.bytes)
        : this.#outgoing.get(frame.id)?.upload?.credit(frame.bytes);
    if (sane === false) throw new Error("more credit came than was ever used");
  }

  #finish(id: number, outcome: { readonly payload?: Payload; readonly error?: SandboxError }): void {
    const call = this.#outgoing.get(id);
    this.#outgoing.delete(id);
    call?.finish(outcome);
  }

  #fail(error: SandboxError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#heartbeat[Symbol.dispose]();
    this.#transport.close();
    for (const call of this.#outgoing.values()) call.finish({ error });
    this.#outgoing.clear();
    for (const call of this.#served.values()) call.cancel(error);
    this.#drained();
    this.#resolveClosed();
  }

  #drained(): void {
    if (this.#failure === undefined && this.#transport.bufferedBytes >= CONGESTED_BYTES) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }
}

function unavailable(what: string): SandboxError {
  return new SandboxError("Unavailable", what, { hint: "ask again; the state of the sandbox says what was done" });
}

/** A peer's error as our type; anything else it sent in that place becomes `Internal`. */
function asWireError(value: unknown): WireError {
  if (typeof value !== "object" || value === null) return { kind: "Internal", message: "an error without a shape" };
  const { kind, message, hint, details } = value as Partial<Record<keyof WireError, unknown>>;
  return {
    kind: typeof kind === "string" && Object.hasOwn(ERROR_KINDS, kind) ? (kind as ErrorKind) : "Internal",
    message: typeof message === "string" ? message : "an error without a message",
    ...(typeof hint === "string" ? { hint } : {}),
    // Details are for programs to read and only ever shown; their values are not trusted further.
    ...(typeof details === "object" && details !== null ? { details: details as ErrorDetails } : {}),
  };
}
