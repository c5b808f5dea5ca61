import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock } from "#core/clock.ts";
import { fromWire, SandboxError, type WireError } from "#core/errors.ts";
import { type Channel, channelPaths, removeChannel, writeRecord } from "./channel.ts";
import { Watchdog } from "./watchdog.ts";

/** What a filler is told first, secrets among it: nobody else can read it. A filler that ends is followed by another, which is told what is right then. */
export type FillerSetup = Readonly<Record<string, unknown>>;

/** A call to a filler, by name. It must be safe to make twice: a filler may end before its answer. */
export interface FillerCall {
  readonly call: string;
  readonly [argument: string]: unknown;
}

/** How a filler is run. */
export interface FillerOptions {
  /** Words of its command line after the runtime's: its program first. */
  readonly words: readonly string[];
  readonly runDir: string;
  /** Where it lives, one directory a tree: so that what ends the node's own cgroup leaves it alone. */
  readonly cgroups: readonly string[];
  /** How long a call waits for its answer. */
  readonly answerMs: number;
  readonly clock?: Clock;
  setup(): FillerSetup;
  /** What it tells unasked. */
  onEvent(event: unknown): void;
  readonly log: (line: string) => void;
}

/** What comes from a filler. `alive` answers the same from the node, at once, whatever else it does. */
export type FillerMessage =
  | { readonly alive: true }
  | { readonly event: unknown }
  | { readonly answer: number; readonly result: unknown }
  | { readonly answer: number; readonly error: WireError };

interface Waiting {
  readonly message: { readonly id: number; readonly call: FillerCall };
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

/** Of what a filler printed, for the log. */
const LAST_WORDS = 1_000;
/** A filler that dies at once again and again must not keep the node busy. */
const LONGEST_PAUSE_MS = 5_000;
const STEADY_MS = 10_000;

/**
 * The process that serves and fills the lazy files of a node. It outlives the node, which holds the connection with the kernel
 * too: readers wait while one of the two is started again. One that hangs is ended and replaced. It holds whatever files its cache has;
 * the node's next process ends it and starts its own.
 */
export class Filler implements AsyncDisposable {
  readonly #channel: Channel;
  readonly #options: FillerOptions;
  readonly #waiting = new Map<number, Waiting>();
  #child: ChildProcess | undefined;
  #watchdog: Watchdog | undefined;
  #nextId = 1;
  #pauseMs = 0;
  #keep = true;
  #closing = false;
  #isSetUp = false;

  /** Starts at once. The channel is the filler's from now on. */
  constructor(channel: Channel, options: FillerOptions) {
    this.#channel = channel;
    this.#options = options;
    this.#start();
  }

  /** Of the process, for tests; another one after each of its deaths. */
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /**
   * Resolves with what the filler answers, also when it is another one by then; rejects with the `SandboxError` it answers, and with
   * `Unavailable` when there is no answer in time.
   */
  call(call: FillerCall): Promise<unknown> {
    if (this.#closing) return Promise.reject(new SandboxError("Unavailable", "the node is closing"));
    const id = this.#nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const waiting = { message: { id, call }, resolve, reject };
    this.#waiting.set(id, waiting);
    this.#send(waiting.message);
    const timer = setTimeout(() => reject(noAnswer(channelPaths(this.#options.runDir).log)), this.#options.answerMs);
    return promise.finally(() => {
      clearTimeout(timer);
      this.#waiting.delete(id);
    });
  }

  /** Whether the process and its files go on when this is disposed: somebody reads them. */
  keep(isKept: boolean): void {
    this.#keep = isKept;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    this.#watchdog?.[Symbol.dispose]();
    for (const { reject } of this.#waiting.values()) reject(new SandboxError("Cancelled", "the node is closing"));
    this.#waiting.clear();
    const child = this.#child;
    if (child?.connected === true) child.disconnect();
    if (!this.#keep) {
      if (child?.exitCode === null && child.signalCode === null) {
        // Nothing else may keep this process running until then.
        child.ref();
        const ended = once(child, "exit");
        child.kill("SIGKILL");
        await ended;
      }
      removeChannel(this.#options.runDir);
    }
    closeSync(this.#channel.descriptor);
  }

  #start(): void {
    const { words, runDir, cgroups, log } = this.#options;
    const stderr = openSync(channelPaths(runDir).log, "w", 0o600);
    const child = spawn(process.execPath, [...words], {
      // A session of its own: it outlives this process and is not meant by signals of its terminal.
      detached: true,
      stdio: ["ignore", "ignore", stderr, this.#channel.descriptor, "ipc"],
      // Whoever looks for processes of this node finds it by this.
      env: { DSEC_RUN_DIR: runDir },
      cwd: "/",
    });
    closeSync(stderr);
    child.unref();
    child.channel?.unref();
    this.#child = child;
    this.#watchdog = this.#watch(child);
    const startedAtMs = performance.now();
    child.once("error", (error) => log(`lazy files cannot be filled: ${error.message}`));
    child.once("spawn", () => {
      for (const dir of cgroups) writeFileSync(join(dir, "cgroup.procs"), String(child.pid), { flag: "r+" });
      // Before it serves: whoever comes next must find it.
      writeRecord(runDir, this.#channel.mechanism, child.pid ?? 0);
      this.#isSetUp = true;
      this.#send({ setup: this.#options.setup() });
      for (const { message } of this.#waiting.values()) this.#send(message);
    });
    child.on("message", (message: FillerMessage) => this.#receive(message));
    child.once("exit", () => this.#followed(performance.now() - startedAtMs));
  }

  #watch(child: ChildProcess): Watchdog {
    return new Watchdog({
      clock: this.#options.clock ?? systemClock,
      ask: () => this.#send({ alive: true }),
      onHang: () => {
        this.#options.log("what fills lazy files hangs, and is ended");
        child.kill("SIGKILL");
      },
    });
  }

  /** What is not sent, because the filler is not there or just ended, the next one gets. */
  #send(message: object): void {
    if (this.#isSetUp && this.#child?.connected === true) this.#child.send(message, () => undefined);
  }

  #receive(message: FillerMessage): void {
    if ("alive" in message) return void this.#watchdog?.answered();
    if ("event" in message) {
      this.#options.onEvent(message.event);
      return;
    }
    const waiting = this.#waiting.get(message.answer);
    this.#waiting.delete(message.answer);
    if ("error" in message) waiting?.reject(fromWire(message.error));
    else waiting?.resolve(message.result);
  }

  /** Empty for one that was killed. */
  #lastWords(): string {
    return readFileSync(channelPaths(this.#options.runDir).log, "utf8").slice(-LAST_WORDS);
  }

  #followed(aliveMs: number): void {
    this.#isSetUp = false;
    this.#watchdog?.[Symbol.dispose]();
    if (this.#closing) return;
    this.#pauseMs = aliveMs > STEADY_MS ? 0 : Math.min(LONGEST_PAUSE_MS, 2 * this.#pauseMs + 1);
    this.#options.log(`what fills lazy files has ended; another takes its place ${this.#lastWords()}`);
    setTimeout(() => {
      if (!this.#closing) this.#start();
    }, this.#pauseMs).unref();
  }
}

function noAnswer(log: string): SandboxError {
  return new SandboxError("Unavailable", "what fills lazy files does not answer", {
    hint: `the log of the node and ${log} say why`,
  });
}
