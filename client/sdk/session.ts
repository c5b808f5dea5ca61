import { randomUUID } from "node:crypto";
import type { CommandReply, OpenSession, RunLine, SessionView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { Command, WAIT_MS } from "./command.ts";
import { segment } from "./paths.ts";
import { inlineResult, postCommand, wireBytes } from "./reply.ts";
import type { Result } from "./result.ts";

/** How to open a session; what is absent comes from the sandbox. */
export interface SessionOptions extends CallOptions {
  /** Unique among the live sessions of the sandbox; made up when absent. */
  readonly name?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** A name or a number, optionally `user:group`. */
  readonly user?: string;
}

/** How to start a line. */
export interface LineOptions extends CallOptions {
  /** From its beginning: what it started is killed, and the shell gives it up. */
  readonly timeLimitMs?: number;
  /** `pipes`: waiting ends when no background job holds its stdout and stderr either. */
  readonly waitFor?: "leader" | "pipes";
  /** Bytes of each stream that stay readable. */
  readonly outputCapBytes?: number;
  /** The same key runs one line, however often it is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** How to run a line to its end. */
export interface RunLineOptions extends LineOptions {
  /** What the line reads; without it, it reads nothing. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
}

/** A persistent shell in a sandbox. It lives by its name: broken connections and restarts do not end it. */
export class Session implements AsyncDisposable {
  readonly name: string;
  readonly #caller: Caller;
  readonly #sandboxPath: string;
  readonly #path: string;

  /** Made by `Sandbox`. */
  constructor(caller: Caller, sandboxPath: string, name: string) {
    this.#caller = caller;
    this.#sandboxPath = sandboxPath;
    this.#path = `${sandboxPath}/sessions/${segment(name)}`;
    this.name = name;
  }

  /** What the server knows now: whether its shell lives, or how it ended. */
  info(options: CallOptions = {}): Promise<SessionView> {
    return this.#caller.json<SessionView>({ ...options, method: "GET", path: this.#path });
  }

  /**
   * Runs a line to its end, after the lines that were started before, and collects what it wrote. Any end is a `Result`;
   * `status.sessionEnded` says that the shell ended with the line. Throws when the session has ended before.
   */
  async run(line: string | Uint8Array, options: RunLineOptions = {}): Promise<Result> {
    const { stdin, ...rest } = options;
    if (stdin === undefined) {
      const reply = await this.#start(line, rest, "none", WAIT_MS);
      return inlineResult(reply) ?? (await this.#command(reply).result(options));
    }
    const command = await this.start(line, { ...rest, stdin: "pipe" });
    // A line that ends without reading its input has not failed: only its end tells how it went.
    command.pipe(stdin, { signal: options.signal }).catch(() => undefined);
    return command.result(options);
  }

  /** Starts a line and returns at once, also when lines before it still run. */
  async start(
    line: string | Uint8Array,
    options: LineOptions & { readonly stdin?: "none" | "pipe" } = {},
  ): Promise<Command> {
    return this.#command(await this.#start(line, options, options.stdin ?? "none", 0));
  }

  /** Ends it and everything it started; again and again. Resolves when nothing of it runs. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "DELETE", path: this.#path, repeatable: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.remove();
  }

  #command(reply: CommandReply): Command {
    return new Command(this.#caller, this.#sandboxPath, reply.id, reply);
  }

  #start(
    line: string | Uint8Array,
    options: LineOptions,
    stdin: "none" | "pipe",
    waitMs: number,
  ): Promise<CommandReply> {
    const body: RunLine = {
      line: wireBytes(line),
      stdin,
      ...(options.timeLimitMs === undefined ? {} : { timeLimitMs: options.timeLimitMs }),
      ...(options.waitFor === undefined ? {} : { waitFor: options.waitFor }),
      ...(options.outputCapBytes === undefined ? {} : { outputCapBytes: options.outputCapBytes }),
    };
    return postCommand(this.#caller, `${this.#path}/commands`, body, { ...options, waitMs });
  }
}

/** Opens a session. Throws `AlreadyExists` while one of that name lives. */
export async function openSession(caller: Caller, sandboxPath: string, options: SessionOptions): Promise<Session> {
  const { name, env, cwd, user, ...call } = options;
  const body: OpenSession = {
    ...(name === undefined ? {} : { name }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  };
  const view = await caller.json<SessionView>({
    ...call,
    method: "POST",
    path: `${sandboxPath}/sessions`,
    headers: { "idempotency-key": randomUUID() },
    json: body,
    repeatable: true,
  });
  return new Session(caller, sandboxPath, view.name);
}
