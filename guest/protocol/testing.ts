import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";
import type { GuestLink, TaskAction, TaskEnd, TaskSink, TaskSpec } from "#core/guest.ts";
import type { OutputStream } from "#core/sandbox.ts";
import { connectUnix } from "./connect.ts";

/** For tests: real agents on this machine, outside of any sandbox, and what a test wants to know of a task. */

const ROOT = join(import.meta.dirname, "../..");
const BUILD = join(ROOT, ".build");
/** The agent as it ships, and as it checks itself. */
export const AGENT_BUILDS = { static: join(BUILD, "dsec-agent"), asan: join(BUILD, "dsec-agent-asan") } as const;
/** Which of the two. */
export type AgentBuild = keyof typeof AGENT_BUILDS;

/** Builds what the tests run; nothing happens when it is up to date. Test files run at once, so one builds and the others wait. */
export function buildAgents(): void {
  const sources = join(ROOT, "guest/agent");
  execFileSync("flock", [sources, "make", "-s", "-C", sources, "test"], { stdio: ["ignore", "inherit", "inherit"] });
}

const FIRST_DESCRIPTOR = 4;

/** How an agent is started. */
export interface AgentOptions {
  readonly build?: AgentBuild;
  readonly args?: readonly string[];
  /** A program with arguments that in turn starts what follows: `unshare …`, `chroot …`. */
  readonly wrap?: readonly string[];
  /** Files handed over from descriptor 4 on. */
  readonly open?: readonly string[];
  /** Directories handed over behind those. */
  readonly directories?: readonly string[];
  /** The program of sessions, handed over after all of these. */
  readonly shell?: string;
  /** How the wrapped program calls the agent, when not by its path. */
  readonly as?: string;
}

/** A running agent with a directory of its own; disposing ends it and everything it started. */
export class TestAgent implements AsyncDisposable {
  readonly directory: string;
  readonly process: ChildProcess;
  readonly socket: string;
  readonly #endedBy: NodeJS.Signals;

  private constructor(directory: string, socket: string, child: ChildProcess, endedBy: NodeJS.Signals) {
    this.directory = directory;
    this.socket = socket;
    this.process = child;
    this.#endedBy = endedBy;
  }

  static async start(options: AgentOptions = {}): Promise<TestAgent> {
    const directory = await mkdtemp(join(tmpdir(), "dsec-agent-"));
    const socket = join(directory, "agent.sock");
    const files = options.open ?? [];
    const directories = options.directories ?? [];
    const opens = [...files.flatMap((path) => ["--open", path]), ...directories.flatMap((path) => ["--read", path])];
    const shell =
      options.shell === undefined ? [] : [`--shell=${FIRST_DESCRIPTOR + files.length + directories.length}`];
    if (options.shell !== undefined) opens.push("--read", options.shell);
    const agent = options.as ?? AGENT_BUILDS[options.build ?? "static"];
    const argv = [socket, ...opens, ...(options.wrap ?? []), agent, ...shell, ...(options.args ?? [])];
    const child = spawn(join(BUILD, "agent-listen"), argv, {
      stdio: ["ignore", "ignore", "inherit"],
      cwd: "/",
      env: { ASAN_OPTIONS: "detect_leaks=0", PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    });
    while (!existsSync(socket) && child.exitCode === null) await new Promise(setImmediate);
    // An init takes no SIGTERM, and `unshare` passes only its own death on.
    return new TestAgent(directory, socket, child, options.wrap === undefined ? "SIGTERM" : "SIGKILL");
  }

  connect(): Promise<GuestLink> {
    return connectUnix(this.socket, AbortSignal.timeout(20_000));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const exited = once(this.process, "exit");
      const inits = childrenOf(this.process.pid);
      this.process.kill(this.#endedBy);
      await exited;
      // One that has changed its ids since does not die with `unshare`.
      if (this.#endedBy === "SIGKILL") for (const pid of inits) killIfThere(pid);
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}

function childrenOf(pid: number | undefined): readonly number[] {
  const text = pid === undefined ? "" : readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}

/** A task as root of the agent's own view, without input or limit. */
export const EXEC_DEFAULTS: Omit<TaskSpec, "action"> = {
  user: "root",
  cwd: "/",
  env: {},
  stdin: "none",
  timeLimitMs: undefined,
};

/** An `exec` of text arguments. */
export function exec(...argv: readonly string[]): TaskAction {
  return { type: "exec", argv: argv.map((argument) => Buffer.from(argument)) };
}

/** Collects what a task does, and acknowledges it as it comes unless told not to. */
export class Recorder implements TaskSink {
  readonly chunks: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  readonly received: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  readonly finished: Record<OutputStream, boolean> = { stdout: false, stderr: false };
  readonly status: PromiseWithResolvers<TaskEnd> = Promise.withResolvers();
  readonly drained: PromiseWithResolvers<void> = Promise.withResolvers();
  /** Called with the total of a stream after each chunk. */
  onOutput: (stream: OutputStream, total: number) => void = () => {};
  /** What had been received when the end came. */
  receivedAtEnd: Readonly<Record<OutputStream, number>> | undefined;
  readonly #acknowledge: (stream: OutputStream, offset: number) => void;

  constructor(acknowledge: (stream: OutputStream, offset: number) => void) {
    this.#acknowledge = acknowledge;
  }

  output(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    if (offset !== this.received[stream]) throw new Error(`output at ${offset}, not at ${this.received[stream]}`);
    this.chunks[stream].push(Buffer.from(bytes));
    this.received[stream] += bytes.length;
    this.#acknowledge(stream, this.received[stream]);
    this.onOutput(stream, this.received[stream]);
  }

  ended(stream: OutputStream, offset: number): void {
    if (offset !== this.received[stream]) throw new Error(`ended at ${offset}, not at ${this.received[stream]}`);
    this.finished[stream] = true;
    if (this.finished.stdout && this.finished.stderr) this.drained.resolve();
  }

  end(status: TaskEnd): void {
    this.receivedAtEnd = { ...this.received };
    this.status.resolve(status);
  }

  text(stream: OutputStream): string {
    return Buffer.concat(this.chunks[stream]).toString();
  }
}

/** A task from its start to its end. */
export interface RunResult {
  readonly end: TaskEnd;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly pid: number;
}

/** What a test says about a task beyond its program. */
export interface RunOptions extends Partial<Omit<TaskSpec, "action">> {
  readonly input?: Uint8Array;
  /** Leaves stdin open after the input. */
  readonly keepOpen?: boolean;
}

/** Numbers for tasks: each test process counts on. */
const numbers = { last: 0 };
export function nextNumber(): number {
  numbers.last += 1;
  return numbers.last;
}

/** Runs one task to its end, and forgets it. */
export async function run(link: GuestLink, action: TaskAction, options: RunOptions = {}): Promise<RunResult> {
  const number = nextNumber();
  const { input, keepOpen, ...rest } = options;
  const recorder = new Recorder((stream, offset) => link.acknowledge(number, stream, offset));
  const stdin = input === undefined ? "none" : "pipe";
  const { pid } = await link.start(number, { ...EXEC_DEFAULTS, stdin, ...rest, action }, recorder);
  try {
    if (input !== undefined) {
      if (input.length > 0) await link.writeStdin(number, 0, input);
      if (keepOpen !== true) link.closeStdin(number);
    }
    const end = await recorder.status.promise;
    return { end, stdout: Buffer.concat(recorder.chunks.stdout), stderr: Buffer.concat(recorder.chunks.stderr), pid };
  } finally {
    link.forget(number);
  }
}

/** Runs a line of the shell. */
export function shell(link: GuestLink, line: string, options: RunOptions = {}): Promise<RunResult> {
  return run(link, exec("/bin/sh", "-c", line), options);
}

/** Defines the same tests for every build of the agent. */
export function forEachBuild(define: (build: AgentBuild) => void): void {
  buildAgents();
  for (const build of ["static", "asan"] as const) define(build);
}
