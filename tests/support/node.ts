import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NODE_FLAGS } from "#bin/node-flags.ts";
import { KEEP_SIGNAL, REMOVE_SIGNAL } from "#bin/stop-signals.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { Client } from "#sdk";
import { findTraces, type Marks, remainingTraces, type Traces } from "./marks.ts";
import { sweep } from "./sweep.ts";

const ENTRY = join(import.meta.dirname, "../../bin/node.ts");
/** For a node to start: making the volume and mounting layers takes a second or two on a busy machine, and a minute on an emulated one. */
export const READY_MS = 240_000;
/** Thousands of sandboxes are removed one after the other. */
const STOP_MS = 120_000;

/** How a node for a test is started. */
export interface NodeOptions {
  /** Further words of its command line, as `--max-sandboxes=10`. */
  readonly words?: readonly string[];
  /** Its run directory is in memory, as /run of a machine is; a folder on disk would be measured with it. */
  readonly runInMemory?: boolean;
  /** Further variables of its environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a real node on folders, port and edge id of its own. */
export async function startNode(options: NodeOptions = {}): Promise<TestNode> {
  const folder = mkdtempSync(join(tmpdir(), "dsec-node-"));
  const node = new TestNode({ folder, edge: `t${randomBytes(6).toString("hex")}` }, options);
  try {
    await node.start();
    return node;
  } catch (error) {
    await sweep(node.marks);
    throw error;
  }
}

/** A node process under test. At the end of its scope nothing of it may be left, and nothing is. */
export class TestNode implements AsyncDisposable {
  readonly marks: Marks;
  readonly dataDir: string;
  readonly runDir: string;
  readonly #options: NodeOptions;
  #child: ChildProcess | undefined;
  #client: Client | undefined;

  /** Made by `startNode`. */
  constructor(marks: Marks, options: NodeOptions) {
    this.marks = marks;
    this.dataDir = join(marks.folder, "data");
    this.runDir = join(marks.folder, "run");
    this.#options = options;
  }

  /** The SDK, connected with the node's root token. */
  get client(): Client {
    this.#client ??= new Client({ url: this.url, token: this.token });
    return this.#client;
  }

  get url(): string {
    const { url } = JSON.parse(readFileSync(join(this.runDir, "node.json"), "utf8")) as { url: string };
    return url;
  }

  get token(): string {
    return readFileSync(join(this.dataDir, "token"), "utf8").trim();
  }

  get pid(): number {
    assert.ok(this.#child?.pid, "the node does not run");
    return this.#child.pid;
  }

  /** What the node has printed since its folder was made. */
  get log(): string {
    return readFileSync(join(this.marks.folder, "log"), "utf8");
  }

  /** The environment by which a command line finds this node. */
  get env(): Readonly<Record<string, string>> {
    return { DSEC_DATA_DIR: this.dataDir, DSEC_RUN_DIR: this.runDir };
  }

  /** Resolves when the node answers; rejects with its log when it does not. `port`: the one of an earlier start, for clients of it. */
  async start({ port = "0" } = {}): Promise<void> {
    for (const folder of [this.dataDir, this.runDir]) mkdirSync(folder, { recursive: true });
    if (this.#options.runInMemory === true && mountAt(this.runDir) === undefined) {
      mount("tmpfs", this.runDir, "tmpfs", 0, "mode=0755");
    }
    const log = openSync(join(this.marks.folder, "log"), "a");
    const words = [`--listen=127.0.0.1:${port}`, `--edge=${this.marks.edge}`, ...(this.#options.words ?? [])];
    this.#child = spawn(process.execPath, [...NODE_FLAGS, ENTRY, ...words], {
      stdio: ["ignore", log, log, "pipe"],
      env: { ...process.env, ...this.env, ...this.#options.env },
    });
    closeSync(log);
    const outcome = await readiness(this.#child);
    // Whoever asked for it meanwhile got one for the address of the node before.
    this.#dropClient();
    if (outcome === "ready") return;
    await this.#end("SIGKILL");
    throw new Error(`the node did not start: ${outcome}\n${this.log}`);
  }

  /** Ends the node as an operator does; resolves with its exit status. `keep` leaves sandboxes to the next start. */
  async stop({ keep = false } = {}): Promise<number | null> {
    return this.#end(keep ? KEEP_SIGNAL : REMOVE_SIGNAL);
  }

  /** Ends the node as a crash does. Sandboxes live on. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Everything on this machine that carries the marks of this node. */
  traces(): Traces {
    return findTraces(this.marks);
  }

  /** Stops the node, asserts that nothing of it is left, and removes what is. */
  async [Symbol.asyncDispose](): Promise<void> {
    const status = this.#child === undefined ? 0 : await this.stop();
    if (this.#options.runInMemory === true) unmount(this.runDir, 0);
    const left = await remainingTraces(this.marks);
    const said = this.log;
    await this.#clean();
    const none: Traces = { processes: [], cgroups: [], mounts: [], loopDevices: [] };
    assert.deepEqual(left, none, `the node left something behind; its log:\n${said.slice(-4_000)}`);
    assert.equal(status, 0, `the node ended with ${status}; its log:\n${said.slice(-4_000)}`);
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    this.#dropClient();
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const ended = once(child, "exit");
    child.kill(signal);
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    await ended;
    clearTimeout(timer);
    return child.exitCode;
  }

  #dropClient(): void {
    this.#client?.close();
    this.#client = undefined;
  }

  async #clean(): Promise<void> {
    await this.#end("SIGKILL");
    await sweep(this.marks);
  }
}

/** The node says `ready` on its third descriptor; that races with its end and with the clock. */
async function readiness(child: ChildProcess): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const timer = setTimeout(() => resolve(`not ready after ${READY_MS} ms`), READY_MS);
  const pipe = child.stdio[3];
  pipe?.on("data", (chunk: Buffer) => resolve(chunk.toString().trim()));
  child.once("exit", (code, signal) => resolve(`ended with ${code ?? signal}`));
  child.once("error", (error) => resolve(error.message));
  const outcome = await promise;
  clearTimeout(timer);
  pipe?.destroy();
  return outcome;
}
