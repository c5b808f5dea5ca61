import { BufferPool } from "#core/bytes/buffer-pool.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink, TaskAction, TaskEnd, TaskSink, TaskSpec } from "#core/guest.ts";
import { decodeListeners, type Listener } from "#core/listeners.ts";
import type { PortPiece } from "#core/ports.ts";
import type { OutputStream } from "#core/sandbox.ts";
import type { SandboxDriver } from "#edge/driver.ts";
import { explain } from "#edge/explain.ts";
import { errnoName } from "#edge/files/errno.ts";
import { Interruption } from "#edge/waiting/interruption.ts";

/** A server whose queue of connections is full answers nothing; one that lives takes from it within this time. */
const CONNECT_LIMIT_MS = 15_000;
/** Bytes given to the agent at once. */
const PIECE_BYTES = 64 * 1024;
/** Output taken by the consumer before the agent is told. */
const ACKNOWLEDGE_BYTES = 64 * 1024;

/** Pieces given to the agent before the first of them is taken: with a single one, each would cost a way there and back. */
const PIECES_AHEAD = 4;

const BUFFERS = new BufferPool(PIECE_BYTES);

/** Bytes from the agent, and how to give their buffer back. */
interface Piece {
  readonly bytes: Uint8Array;
  readonly done: (() => void) | undefined;
}

/** A call of the node API about the ports of one sandbox. */
interface PortCall {
  readonly driver: SandboxDriver;
  readonly signal: AbortSignal;
}

/** See `Node.openPort`. */
export async function* openPort(
  call: PortCall,
  port: number,
  incoming: AsyncIterable<Uint8Array>,
): AsyncGenerator<PortPiece, void, undefined> {
  checkPort(port);
  try {
    await using task = await PortTask.start(call, { type: "connect", port }, CONNECT_LIMIT_MS);
    yield "open";
    void task.send(incoming);
    yield* task.read();
  } catch (error) {
    await explain(error, call);
  }
}

/** See `Node.waitForPort`. */
export async function waitForPort(call: PortCall, port: number, waitMs: number): Promise<boolean> {
  checkPort(port);
  using _busy = call.driver.busy();
  try {
    await using task = await PortTask.start(call, { type: "listeners", port }, Math.max(1, waitMs));
    for await (const _ of task.read()) {
      // It writes nothing; reading waits for its end.
    }
    return !task.timedOut;
  } catch (error) {
    return explain(error, call);
  }
}

/** See `Node.listListeners`. */
export async function listListeners(call: PortCall): Promise<readonly Listener[]> {
  try {
    await using task = await PortTask.start(call, { type: "listeners", port: undefined }, undefined);
    const chunks: Uint8Array[] = [];
    for await (const piece of task.read()) if (piece !== "end") chunks.push(new Uint8Array(piece));
    return decodeListeners(Buffer.concat(chunks));
  } catch (error) {
    return explain(error, call);
  }
}

function checkPort(port: number): void {
  if (Number.isInteger(port) && port >= 1 && port <= 65_535) return;
  throw new SandboxError("InvalidArgument", "port must be a number from 1 to 65535", { details: { field: "port" } });
}

/** One task about ports in the agent. Disposing drops it: a connection that has not ended is reset. */
class PortTask implements TaskSink, AsyncDisposable {
  timedOut = false;
  readonly #link: GuestLink;
  readonly #number: number;
  readonly #call: PortCall;
  readonly #over = new Interruption();
  #pieces: (Piece | "end")[] = [];
  #received = 0;
  #taken = 0;
  #acknowledged = 0;
  #outcome: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;

  private constructor(call: PortCall, link: GuestLink) {
    this.#call = call;
    this.#link = link;
    this.#number = call.driver.commands.nextNumber();
    call.signal.addEventListener("abort", this.#onAbort, { once: true });
    void link.closed.then(() => this.#settle(connectionLost()));
  }

  static async start(call: PortCall, action: TaskAction, timeLimitMs: number | undefined): Promise<PortTask> {
    const link = await call.driver.agent("use", call.signal);
    call.signal.throwIfAborted();
    const task = new PortTask(call, link);
    // No process is made, so nobody's name, directory or environment matters.
    const stdin = action.type === "connect" ? "pipe" : "none";
    const spec: TaskSpec = { action, user: "root", cwd: "/", env: {}, stdin, timeLimitMs };
    try {
      await abortable(link.start(task.#number, spec, task), call.signal);
    } catch (error) {
      await task[Symbol.asyncDispose]();
      throw startError(error, action);
    }
    return task;
  }

  output(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    if (stream !== "stdout") throw new Error("a connection has one output");
    // The buffer belongs to the link again when this call returns.
    const { buffer, done } = BUFFERS.take(bytes.length);
    buffer.set(bytes);
    this.#pieces.push({ bytes: buffer.subarray(0, bytes.length), done });
    this.#received = offset + bytes.length;
    this.#wake?.();
  }

  ended(stream: OutputStream): void {
    if (stream !== "stdout") return;
    this.#pieces.push("end");
    this.#wake?.();
  }

  end({ cause, code = 0 }: TaskEnd): void {
    this.timedOut = cause === "timeout";
    this.#settle(code === 0 ? undefined : broken(code));
  }

  /** What comes out; ends, or throws, when the task does. */
  async *read(): AsyncGenerator<Uint8Array | "end", void, undefined> {
    for (;;) {
      const pieces = this.#pieces;
      this.#pieces = [];
      for (const piece of pieces) {
        if (piece === "end") yield piece;
        else {
          this.#take(piece.bytes);
          yield piece.bytes;
          // Whoever reads has asked for the next one.
          piece.done?.();
        }
      }
      if (this.#pieces.length > 0) continue;
      if (this.#outcome !== undefined) break;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#outcome.error !== undefined) throw this.#outcome.error;
  }

  /** Sends what comes and then the end of it. Never rejects: what goes wrong ends `read`. */
  async send(incoming: AsyncIterable<Uint8Array>): Promise<void> {
    const untaken: Promise<void>[] = [];
    let offset = 0;
    try {
      for await (const chunk of incoming) {
        for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
          const piece = chunk.subarray(at, at + PIECE_BYTES);
          this.#call.driver.touch();
          // The agent answers nothing for a task that has ended: its end is the answer then.
          const taken = this.#over.guard(this.#link.writeStdin(this.#number, offset, piece));
          taken.catch(() => undefined);
          offset += piece.length;
          if (untaken.push(taken) > PIECES_AHEAD) await untaken.shift();
        }
      }
      if (this.#outcome === undefined) this.#link.closeStdin(this.#number);
    } catch (error) {
      this.#settle(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#call.signal.removeEventListener("abort", this.#onAbort);
    this.#settle(new SandboxError("Cancelled", "the connection was given up"));
    this.#link.forget(this.#number);
  }

  readonly #onAbort = () => this.#settle(this.#call.signal.reason);

  #settle(error: unknown): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = { error };
    this.#over.fire(error ?? new SandboxError("PortFailed", "the server has closed the connection"));
    this.#wake?.();
  }

  #take(piece: Uint8Array): void {
    this.#call.driver.touch();
    this.#taken += piece.length;
    if (this.#taken - this.#acknowledged < ACKNOWLEDGE_BYTES && this.#taken < this.#received) return;
    this.#acknowledged = this.#taken;
    this.#link.acknowledge(this.#number, "stdout", this.#taken);
  }
}

function startError(error: unknown, action: TaskAction): unknown {
  if (!(error instanceof SandboxError) || action.type !== "connect") return error;
  const { kind, message, hint, details, cause } = error;
  if (kind === "SandboxLimit") {
    return new SandboxError(kind, "the sandbox has no room for another connection to its ports", {
      cause,
      details,
      hint: "close connections that are not needed any more",
    });
  }
  if (kind !== "PortFailed") return error;
  const named = message.replace("at the port", `at port ${action.port}`);
  return new SandboxError(kind, named, { cause, details: { ...details, port: action.port }, ...(hint && { hint }) });
}

function broken(errno: number): SandboxError {
  const code = errnoName(errno);
  return new SandboxError("PortFailed", `the connection to the port broke (${code})`, { details: { code } });
}

function connectionLost(): SandboxError {
  return new SandboxError("Unavailable", "the connection to the sandbox broke", { hint: "connect again" });
}
