import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { createInterface } from "node:readline";
import { Duplex } from "node:stream";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import { createFailure, errnoName } from "./failure.ts";
import {
  type BlankRequest,
  type CradleReply,
  type CradleRequest,
  encodeBlank,
  encodeCancel,
  encodeCreate,
  encodeDrop,
  PROTOCOL_VERSION,
  ReplyReader,
} from "./wire.ts";

export type { BlankRequest, CradleCgroup, CradleRequest } from "./wire.ts";

/** The launcher of a node's containers. It ends with this process or its disposal; sandboxes live on. */
export interface Cradle extends AsyncDisposable {
  readonly pid: number;
  /** How this kernel takes layers: `fd`, or `paths` before Linux 6.15. */
  readonly overlayMode: string;
  /**
   * Resolves with the agent's host pid when the agent runs: its socket takes connections. Rejects with a `SandboxError`, and
   * then nothing of the sandbox is left. An abort that comes too late has no effect: look at the signal afterwards.
   */
  create(request: CradleRequest, signal: AbortSignal): Promise<{ readonly pid: number }>;
  /**
   * Makes a blank: an agent that answers at its socket and waits for a sandbox. The next `create` with its `uidBase` uses it up, and
   * moves its socket. Rejects as `create` does; it ends with the launcher.
   */
  blank(request: BlankRequest, signal: AbortSignal): Promise<{ readonly pid: number }>;
  /** Ends the blank of these ids. No effect when there is none. */
  drop(uidBase: number): void;
  /** Calls back for every agent that ends, never before its `create` has resolved. */
  onExit(listener: (exit: AgentExit) => void): Disposable;
  /** Resolves when the launcher is gone, however it went. No exit is reported from then on. */
  readonly closed: Promise<void>;
}

/** How an agent ended: exactly one of the two is present. */
export interface AgentExit {
  readonly pid: number;
  readonly code: number | undefined;
  readonly signal: number | undefined;
}

/** What a launcher is started with. */
export interface CradleOptions {
  readonly binary: string;
  /** Owned by root, mode 0711: refused otherwise, because a readable agent can be traced by its sandbox. */
  readonly agentBinary: string;
  /** Gets what the launcher writes to stderr, line by line. */
  readonly log: (line: string) => void;
  /** A directory with files that stand for some of each sandbox's /proc; without one they see the machine's. */
  readonly view?: string | undefined;
  /** The program that sessions run: a static bash. Without one there are no sessions. */
  readonly shell?: string | undefined;
  /** Overrides the probe of the kernel. For tests. */
  readonly overlayMode?: "fd" | "paths";
}

interface Pending {
  readonly id: string;
  readonly resolve: (created: { readonly pid: number }) => void;
  readonly reject: (error: SandboxError) => void;
}

/** A launcher that does not end on its own after this long is killed: its workers wait no longer for anything. */
const CLOSE_LIMIT_MS = 30_000;

/** Starts the launcher. Rejects with `FailedPrecondition` when this host cannot run it. */
export async function startCradle(options: CradleOptions): Promise<Cradle> {
  const shell = options.shell === undefined ? undefined : `--shell=${options.shell}`;
  const words = [options.overlayMode, options.view, shell].filter((word) => word !== undefined);
  const child = spawn(options.binary, [options.agentBinary, ...words], {
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    env: {},
    cwd: "/",
  });
  try {
    await once(child, "spawn");
  } catch (cause) {
    throw new SandboxError("FailedPrecondition", "start the container launcher", { cause, hint: "build it first" });
  }
  const cradle = new CradleProcess(child, options.log);
  await cradle.ready();
  return cradle;
}

class CradleProcess implements Cradle {
  readonly closed: Promise<void>;
  overlayMode = "unknown";
  readonly #child: ChildProcess;
  readonly #link: Duplex;
  readonly #log: (line: string) => void;
  readonly #reader = new ReplyReader();
  readonly #pending = new Map<number, Pending>();
  readonly #events = new EventEmitter<{ exit: [AgentExit] }>();
  readonly #hello = Promise.withResolvers<void>();
  #lastTag = 0;
  #open = true;

  constructor(child: ChildProcess, log: (line: string) => void) {
    const link = child.stdio[3];
    if (!(link instanceof Duplex) || child.stderr === null) throw new Error("the launcher has no pipes");
    this.#child = child;
    this.#link = link;
    this.#log = log;
    this.#events.setMaxListeners(0);
    createInterface({ input: child.stderr }).on("line", log);
    link.on("data", (bytes: Buffer) => this.#receive(bytes));
    // What a broken link means shows in the end of the process.
    link.on("error", () => {});
    this.closed = new Promise((resolve) => {
      child.once("close", () => {
        this.#end();
        resolve();
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  ready(): Promise<void> {
    return this.#hello.promise;
  }

  create(request: CradleRequest, signal: AbortSignal): Promise<{ readonly pid: number }> {
    return this.#ask(request.id, (tag) => encodeCreate(tag, request), signal);
  }

  blank(request: BlankRequest, signal: AbortSignal): Promise<{ readonly pid: number }> {
    return this.#ask(`blank ${request.uidBase}`, (tag) => encodeBlank(tag, request), signal);
  }

  drop(uidBase: number): void {
    if (this.#open) this.#link.write(encodeDrop(uidBase));
  }

  #ask(id: string, encode: (tag: number) => Buffer, signal: AbortSignal): Promise<{ readonly pid: number }> {
    if (signal.aborted) return Promise.reject(asSandboxError(signal.reason));
    if (!this.#open) return Promise.reject(lost());
    this.#lastTag = this.#lastTag === 0xffff_ffff ? 1 : this.#lastTag + 1;
    const tag = this.#lastTag;
    const { promise, resolve, reject } = Promise.withResolvers<{ readonly pid: number }>();
    let frame: Buffer;
    try {
      frame = encode(tag);
    } catch (error) {
      return Promise.reject(asSandboxError(error));
    }
    const cancel = () => this.#link.write(encodeCancel(tag));
    signal.addEventListener("abort", cancel, { once: true });
    this.#pending.set(tag, {
      id,
      resolve,
      reject: (error) => reject(error.details.errno === "ECANCELED" ? asSandboxError(signal.reason) : error),
    });
    this.#link.write(frame);
    return promise.finally(() => signal.removeEventListener("abort", cancel));
  }

  onExit(listener: (exit: AgentExit) => void): Disposable {
    this.#events.on("exit", listener);
    return { [Symbol.dispose]: () => this.#events.off("exit", listener) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#open) this.#link.end();
    const limit = setTimeout(() => this.#child.kill("SIGKILL"), CLOSE_LIMIT_MS);
    await this.closed;
    clearTimeout(limit);
  }

  #receive(bytes: Buffer): void {
    try {
      for (const reply of this.#reader.push(bytes)) this.#handle(reply);
    } catch (error) {
      this.#log(`the launcher is broken and will be ended: ${String(error)}`);
      this.#child.kill("SIGKILL");
    }
  }

  #handle(reply: CradleReply): void {
    switch (reply.type) {
      case "hello":
        this.#greet(reply.protocol, reply.overlayMode);
        break;
      case "created":
        this.#take(reply.tag)?.resolve({ pid: reply.pid });
        break;
      case "failed":
        this.#fail(reply.tag, reply.stage, reply.errno);
        break;
      case "exit":
        // After the microtasks of a `created` in the same chunk: whoever made the sandbox knows it by then.
        setImmediate(() => this.#events.emit("exit", agentExit(reply.pid, reply.status)));
    }
  }

  #greet(protocol: number, overlayMode: string): void {
    this.overlayMode = overlayMode;
    if (protocol === PROTOCOL_VERSION) {
      this.#hello.resolve();
      return;
    }
    this.#link.end();
    this.#hello.reject(
      new SandboxError("FailedPrecondition", `the container launcher speaks protocol ${protocol}`, {
        hint: "build it again",
      }),
    );
  }

  #fail(tag: number, stage: string, errno: number): void {
    if (tag !== 0) {
      const pending = this.#take(tag);
      pending?.reject(createFailure(pending.id, stage, errno));
      return;
    }
    this.#hello.reject(
      new SandboxError("FailedPrecondition", `the container launcher cannot start: ${stage}: ${errnoName(errno)}`, {
        hint: "run the node as root on a kernel with user namespaces, overlay and EROFS",
        details: { stage, errno: errnoName(errno) },
      }),
    );
  }

  #take(tag: number): Pending | undefined {
    const pending = this.#pending.get(tag);
    this.#pending.delete(tag);
    return pending;
  }

  #end(): void {
    this.#open = false;
    this.#hello.reject(lost());
    for (const pending of this.#pending.values()) pending.reject(lost());
    this.#pending.clear();
  }
}

function lost(): SandboxError {
  return new SandboxError("Unavailable", "the container launcher is gone", { hint: "ask again in a while" });
}

/** Takes apart a status of wait(2). */
function agentExit(pid: number, status: number): AgentExit {
  const signal = status & 0x7f;
  return signal === 0 ? { pid, code: (status >> 8) & 0xff, signal: undefined } : { pid, code: undefined, signal };
}
