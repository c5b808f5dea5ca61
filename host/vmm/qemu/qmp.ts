import { EventEmitter } from "node:events";
import { connect, type Socket } from "node:net";
import { BoundedLines } from "#core/bytes/bounded-lines.ts";
import { SandboxError } from "#core/errors.ts";

/** A line that QEMU sends: an answer, an event, or its greeting. */
interface Line {
  readonly return?: unknown;
  readonly error?: { readonly desc: string };
  readonly event?: string;
  readonly data?: unknown;
  readonly id?: number;
}

interface Waiting {
  readonly order: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: SandboxError) => void;
  readonly timer: NodeJS.Timeout;
}

/** The longest are answers with the console's ring, of which any byte may take six. */
const LONGEST_LINE_BYTES = 1024 * 1024;
/** Of QEMU in capitals; what distributors add begins with `__`. */
const EVENT_NAME = /^(?:[A-Z]|__)[\w.]*$/;
/** All are done in milliseconds but what writes disks out. One that hangs must not hold who adopts it, nor who waits for its machine. */
const ORDER_LIMIT_MS = 120_000;

/** QEMU's monitor: orders out, answers and events in. One connection at a time, which ends when an order has no answer within its time. */
export class Qmp {
  readonly events = new EventEmitter();
  /** Resolves when the connection is gone: QEMU has ended. */
  readonly closed: Promise<void>;
  readonly #socket: Socket;
  readonly #waiting = new Map<number, Waiting>();
  readonly #limitMs: number;
  #last = 0;
  #open = true;

  /** `socket` is connected. */
  constructor(socket: Socket, limitMs = ORDER_LIMIT_MS) {
    this.#socket = socket;
    this.#limitMs = limitMs;
    const lines = new BoundedLines(LONGEST_LINE_BYTES);
    socket.on("data", (bytes) => {
      const whole = lines.push(bytes)?.map(parseLine);
      // A guest may have taken QEMU over: what is no answer of it ends the talk.
      if (whole === undefined || whole.includes(undefined)) socket.destroy();
      for (const line of whole ?? []) if (line !== undefined) this.#receive(line);
    });
    // What a broken connection means shows in its end.
    socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.#end();
        resolve();
      });
    });
  }

  /** Carries out an order. Rejects with `Internal` when QEMU refuses, with `SandboxLost` when it is gone or does not answer. */
  order(name: string, words: Readonly<Record<string, unknown>> = {}): Promise<unknown> {
    if (!this.#open) return Promise.reject(gone(name));
    this.#last += 1;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const timer = setTimeout(() => this.#socket.destroy(), this.#limitMs);
    timer.unref();
    this.#waiting.set(this.#last, { order: name, resolve, reject, timer });
    this.#socket.write(`${JSON.stringify({ execute: name, arguments: words, id: this.#last })}\n`);
    return promise;
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(line: Line): void {
    if (line.event !== undefined) {
      this.events.emit(line.event, line.data);
      return;
    }
    const waiting = line.id === undefined ? undefined : this.#waiting.get(line.id);
    if (waiting === undefined || line.id === undefined) return;
    this.#waiting.delete(line.id);
    clearTimeout(waiting.timer);
    if (line.error === undefined) waiting.resolve(line.return);
    else waiting.reject(new SandboxError("Internal", `QEMU refuses ${waiting.order}: ${line.error.desc}`));
  }

  #end(): void {
    this.#open = false;
    for (const { order, reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(gone(order));
    }
    this.#waiting.clear();
  }
}

/** Connects to the monitor of a QEMU that listens at `path`. Rejects with the system's error when nobody does. An order may take `limitMs`. */
export async function connectQmp(path: string, limitMs?: number): Promise<Qmp> {
  const socket = connect(path);
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", resolve);
    socket.once("error", reject);
  });
  const qmp = new Qmp(socket, limitMs);
  try {
    await qmp.order("qmp_capabilities");
  } catch (error) {
    qmp.close();
    throw error;
  }
  return qmp;
}

/** `undefined` for what QEMU never sends. */
function parseLine(text: string): Line | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isLine(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isLine(value: unknown): value is Line {
  if (typeof value !== "object" || value === null) return false;
  const { event, error } = value as { readonly event?: unknown; readonly error?: unknown };
  // An event of the name `error` would be thrown by who passes it on.
  if (event !== undefined && !(typeof event === "string" && EVENT_NAME.test(event))) return false;
  if (error === undefined) return true;
  return typeof error === "object" && error !== null && "desc" in error && typeof error.desc === "string";
}

function gone(order: string): SandboxError {
  return new SandboxError("SandboxLost", `the machine has ended, or hangs, before ${order}`);
}
