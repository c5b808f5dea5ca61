import type {
  CommandList,
  CommandReply,
  CommandView,
  PackView,
  SandboxPatch,
  SandboxView,
  SessionView,
  StartCommand,
  TerminalSize,
  UsageView,
} from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { Command, WAIT_MS } from "./command.ts";
import { Computer } from "./computer.ts";
import { Files } from "./files.ts";
import { type ForkOptions, type Forks, forkSandbox, type PackOptions, packDiff } from "./packing.ts";
import { sandboxPath } from "./paths.ts";
import { Ports } from "./ports.ts";
import { inlineResult, postCommand, wireBytes } from "./reply.ts";
import type { Result } from "./result.ts";
import { openSession, Session, type SessionOptions } from "./session.ts";
import { followUsage, type UsageOptions } from "./usage.ts";

/** What terminals have always had. */
const DEFAULT_SIZE: TerminalSize = { rows: 24, cols: 80 };

/** Which commands to list. */
export interface CommandListOptions extends CallOptions {
  readonly newestFirst?: boolean;
  readonly limit?: number;
}

/** Commands asked for at once. */
const PAGE = 500;

/** How to start a command; what is absent comes from the sandbox. */
export interface StartOptions extends CallOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** A name or a number, optionally `user:group`. */
  readonly user?: string;
  /** The command's own limit: its process group is killed, its output stays. */
  readonly timeLimitMs?: number;
  /** `pipes`: the end is waited for until nobody holds stdout and stderr, background children say. */
  readonly waitFor?: "leader" | "pipes";
  /** Bytes of each stream that stay readable. */
  readonly outputCapBytes?: number;
  /** The same key starts one command, however often it is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** How to run a command to its end. */
export interface RunOptions extends StartOptions {
  /** What the command reads; without it, it reads nothing. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
}

/** How to start a terminal. */
export interface TerminalOptions extends StartOptions {
  readonly line?: CommandLine;
  /** 24 rows of 80 columns unless said otherwise. */
  readonly size?: TerminalSize;
}

/** A shell line for the sandbox's `/bin/sh`, or a program with its arguments; arguments may be any bytes but NUL. */
export type CommandLine = string | readonly (string | Uint8Array)[];

/** One live environment. `await using` removes it at the end of the block. */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly files: Files;
  readonly ports: Ports;
  readonly computer: Computer;
  readonly #caller: Caller;
  readonly #path: string;
  #view: SandboxView | undefined;

  /** Made by `Sandboxes`. */
  constructor(caller: Caller, id: string, view?: SandboxView) {
    this.#caller = caller;
    this.#path = sandboxPath(id);
    this.#view = view;
    this.id = id;
    this.files = new Files(caller, this.#path);
    this.ports = new Ports(caller, this.#path);
    this.computer = new Computer(caller, this.#path);
  }

  /** What was last heard of it; `info` asks. */
  get view(): SandboxView | undefined {
    return this.#view;
  }

  /** What the server knows now. */
  async info(options: CallOptions = {}): Promise<SandboxView> {
    this.#view = await this.#caller.json<SandboxView>({ ...options, method: "GET", path: this.#path });
    return this.#view;
  }

  /**
   * Runs a command to its end and collects what it wrote. Any end is a `Result`; only a command that could not be started
   * and a call that failed throw. Giving up by signal or limit ends the wait, not the command: `timeLimitMs` does that.
   */
  async run(line: CommandLine, options: RunOptions = {}): Promise<Result> {
    const { stdin, ...rest } = options;
    if (stdin === undefined) {
      const reply = await this.#start(line, rest, "none", WAIT_MS);
      const inline = inlineResult(reply);
      if (inline !== undefined) return inline;
      return new Command(this.#caller, this.#path, reply.id, reply).result(options);
    }
    const command = await this.start(line, { ...rest, stdin: "pipe" });
    // A command that ends without reading its input has not failed: only its end tells how it went.
    command.pipe(stdin, { signal: options.signal }).catch(() => undefined);
    return command.result(options);
  }

  /** Starts a command and returns at once. */
  async start(line: CommandLine, options: StartOptions & { readonly stdin?: "none" | "pipe" } = {}): Promise<Command> {
    const reply = await this.#start(line, options, options.stdin ?? "none", 0);
    return new Command(this.#caller, this.#path, reply.id, reply);
  }

  /** Starts a program on a terminal, the user's shell of `/bin/sh` unless one is named. Attach to it to see and type. */
  async terminal(options: TerminalOptions = {}): Promise<Command> {
    const { line = ["/bin/sh"], size = DEFAULT_SIZE, ...rest } = options;
    const reply = await this.#start(line, { ...rest, terminal: size }, "pipe", 0);
    return new Command(this.#caller, this.#path, reply.id, reply);
  }

  /**
   * Opens a persistent shell of the platform: directory, variables, functions and background jobs stay from line to line.
   * `await using` ends it, with everything that it started.
   */
  session(options: SessionOptions = {}): Promise<Session> {
    return openSession(this.#caller, this.#path, options);
  }

  /** A handle for a session's name. Nothing is asked. */
  openedSession(name: string): Session {
    return new Session(this.#caller, this.#path, name);
  }

  /** Its sessions, also those that have ended and were not removed. */
  async sessions(options: CallOptions = {}): Promise<readonly SessionView[]> {
    const path = `${this.#path}/sessions`;
    return (await this.#caller.json<{ readonly sessions: readonly SessionView[] }>({ ...options, method: "GET", path }))
      .sessions;
  }

  /** A handle for a command's id. Nothing is asked. */
  command(id: string): Command {
    return new Command(this.#caller, this.#path, id);
  }

  /** What was started in it, in order: all of it, page by page, or the first `limit`. */
  async commands(options: CommandListOptions = {}): Promise<readonly CommandView[]> {
    const { limit = Number.POSITIVE_INFINITY, newestFirst, ...call } = options;
    const commands: CommandView[] = [];
    for (let cursor: string | undefined; ; ) {
      const left = Math.min(PAGE, limit - commands.length);
      const query = { limit: left, newestFirst, cursor };
      const page: CommandList = await this.#caller.json({
        ...call,
        method: "GET",
        path: `${this.#path}/commands`,
        query,
      });
      commands.push(...page.commands);
      cursor = page.cursor;
      if (cursor === undefined || commands.length >= limit) return commands;
    }
  }

  /** What it uses now, beside its limits. Throws `FailedPrecondition` unless it is ready. */
  usage(options: CallOptions = {}): Promise<UsageView> {
    return this.#caller.json({ ...options, method: "GET", path: `${this.#path}/usage` });
  }

  /** What it uses, again and again until it is removed. Breaking off the loop ends it on the server. */
  usageStream(options: UsageOptions = {}): AsyncGenerator<UsageView> {
    return followUsage(this.#caller, this.#path, options);
  }

  /**
   * Makes a snapshot of it, ready or failed: `create({ base: name })` makes sandboxes that begin where it is. What its processes
   * hold in memory is not part of it.
   */
  packDiff(options: PackOptions): Promise<PackView> {
    return packDiff(this.#caller, this.#path, options);
  }

  /**
   * Makes sandboxes that begin with all that it has written, at one instant, and have its limits and labels. They share its data and
   * are independent from there on. Its processes do not come along.
   */
  fork(options: ForkOptions): Promise<Forks> {
    const handle = (view: SandboxView) => new Sandbox(this.#caller, view.id, view);
    return forkSandbox(this.#caller, this.#path, options, handle);
  }

  /** Moves its time limits. */
  async extend(patch: SandboxPatch, options: CallOptions = {}): Promise<SandboxView> {
    const call = { ...options, method: "PATCH", path: this.#path, json: patch, repeatable: true } as const;
    this.#view = await this.#caller.json<SandboxView>(call);
    return this.#view;
  }

  /**
   * Saves it as it is at this moment, processes and all, and gives its compute back. Whatever is asked of it afterwards resumes it first. `FailedPrecondition` where
   * its backend cannot: microVMs can.
   */
  pause(options: CallOptions = {}): Promise<SandboxView> {
    return this.#move("pause", options);
  }

  /** Lets it go on where it was. `NodeFull` when its node has no room for it now: it stays paused. */
  resume(options: CallOptions = {}): Promise<SandboxView> {
    return this.#move("resume", options);
  }

  /** Resolves when nothing of it is left; again and again. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "DELETE", path: this.#path, repeatable: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.remove();
  }

  async #move(verb: "pause" | "resume", options: CallOptions): Promise<SandboxView> {
    const call = { ...options, method: "POST", path: `${this.#path}/${verb}`, repeatable: true } as const;
    this.#view = await this.#caller.json<SandboxView>(call);
    return this.#view;
  }

  #start(
    line: CommandLine,
    options: StartOptions & { readonly terminal?: TerminalSize },
    stdin: "none" | "pipe",
    waitMs: number,
  ): Promise<CommandReply> {
    const body: StartCommand = {
      ...(typeof line === "string" ? { shell: line } : { argv: line.map(wireBytes) }),
      stdin,
      ...(options.terminal === undefined ? {} : { terminal: { ...options.terminal } }),
      ...(options.env === undefined ? {} : { env: { ...options.env } }),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.user === undefined ? {} : { user: options.user }),
      ...(options.timeLimitMs === undefined ? {} : { timeLimitMs: options.timeLimitMs }),
      ...(options.waitFor === undefined ? {} : { waitFor: options.waitFor }),
      ...(options.outputCapBytes === undefined ? {} : { outputCapBytes: options.outputCapBytes }),
    };
    return postCommand(this.#caller, `${this.#path}/commands`, body, { ...options, waitMs });
  }
}
