import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { NodeTree } from "#host/cgroup/layout.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { copyDescriptor, signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { viewTrees } from "./trees.ts";

/** What sandboxes of one node see of the machine, as files in a directory of the host. */
export interface View extends AsyncDisposable {
  /** Holds `meminfo`, `cpuinfo`, …; each shows the reader its own sandbox, and nothing to readers in none. */
  readonly path: string;
  /** Of the server, for tests; another one after each of its deaths. */
  readonly pid: number;
}

/** Where a view lives and whose it is. */
export interface ViewOptions {
  readonly binary: string;
  readonly runDir: string;
  /** Holds a directory for each sandbox. */
  readonly sandboxesDir: string;
  /** The node's name in its cgroups, and its directory in each of their trees. */
  readonly node: string;
  readonly trees: readonly NodeTree[];
  /** Where the server lives, one directory a tree: with the agents, so that what ends the node's own cgroup leaves it alone. */
  readonly cgroups: readonly string[];
  /** Whether sandboxes that read it are alive: they keep it when this is disposed. */
  isInUse(): boolean;
  readonly log: (line: string) => void;
}

const SIGKILL = 9;
/** Where the server has its connection with the kernel. */
const FUSE_FD = 3;
const TYPE = "fuse.dsec-view";
/** A server that dies at once again and again must not keep the node busy. */
const LONGEST_PAUSE_MS = 5_000;
const STEADY_MS = 10_000;
/** Time for a server to end after its file system. */
const END_MS = 2_000;

/**
 * Serves the view, or takes over the one that an earlier node left. The connection with the kernel is held here and by the server:
 * it breaks, for every live sandbox, only when both die. A server that dies is followed by another on the same connection.
 * `FailedPrecondition` when this host has no FUSE, or the program was not built. When this resolves the files can be read.
 */
export async function openView(options: ViewOptions): Promise<View> {
  const path = join(options.runDir, "view");
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const fuse = (await takeOver(options.runDir, path)) ?? mountView(path);
  const view = new ServedView(options, path, fuse);
  try {
    await view.ready(view.start());
    return view;
  } catch (error) {
    await view.abandon();
    throw error;
  }
}

class ServedView implements View {
  readonly path: string;
  readonly #options: ViewOptions;
  readonly #fuse: number;
  #server: ChildProcess | undefined;
  #closing = false;
  #pauseMs = 0;

  constructor(options: ViewOptions, path: string, fuse: number) {
    this.#options = options;
    this.path = path;
    this.#fuse = fuse;
  }

  get pid(): number {
    return this.#server?.pid ?? 0;
  }

  /** Resolves when the files can be found; rejects when the first server does not get so far. */
  async ready(server: ChildProcess): Promise<void> {
    const { promise: failed, reject } = Promise.withResolvers<never>();
    const fail = (cause: unknown) =>
      reject(
        new SandboxError("FailedPrecondition", "the server of what sandboxes see does not start", {
          cause,
          hint: "build it with ./dsec or make -C host/view, or start the node with --no-own-view",
        }),
      );
    server.once("error", fail);
    server.once("exit", fail);
    await Promise.race([stat(join(this.path, "meminfo")), failed]);
    server.off("error", fail);
    server.off("exit", fail);
  }

  /** Lets go of a view that nobody can read. */
  async abandon(): Promise<void> {
    this.#closing = true;
    this.#server?.kill("SIGKILL");
    // With its last descriptor the connection ends, and every wait for it.
    closeSync(this.#fuse);
    this.#remove();
  }

  start(): ChildProcess {
    const { binary, cgroups, node, sandboxesDir, runDir, trees } = this.#options;
    const server = spawn(binary, [node, sandboxesDir, join(runDir, "view.request"), ...viewTrees(trees)], {
      // A session of its own: it outlives this process and is not meant by signals of its terminal.
      detached: true,
      stdio: ["ignore", "ignore", "ignore", this.#fuse],
      env: { DSEC_RUN_DIR: runDir },
      cwd: "/",
    });
    server.unref();
    this.#server = server;
    const startedAtMs = performance.now();
    server.once("error", (error) => this.#options.log(`the view of sandboxes cannot be served: ${error.message}`));
    server.once("spawn", () => {
      for (const dir of cgroups) writeFileSync(join(dir, "cgroup.procs"), String(server.pid), { flag: "r+" });
      record(runDir, server.pid ?? 0);
    });
    server.once("exit", () => this.#followed(performance.now() - startedAtMs));
    return server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    const server = this.#server;
    if (!this.#options.isInUse()) {
      closeSync(this.#fuse);
      unmountAll(this.path);
      // Without its file system the server ends by itself.
      if (server?.exitCode === null && server.signalCode === null) {
        const ended = once(server, "exit");
        const late = delay(END_MS, "late", { ref: true });
        if ((await Promise.race([ended, late])) === "late") server.kill("SIGKILL");
      }
      this.#remove();
    } else closeSync(this.#fuse);
  }

  #remove(): void {
    unmountAll(this.path);
    for (const name of ["view.json", "view.json.new", "view.request"])
      rmSync(join(this.#options.runDir, name), { force: true });
    rmdirSync(this.path);
  }

  #followed(aliveMs: number): void {
    if (this.#closing) return;
    this.#pauseMs = aliveMs > STEADY_MS ? 0 : Math.min(LONGEST_PAUSE_MS, 2 * this.#pauseMs + 1);
    this.#options.log("what serves the view of sandboxes has ended; another takes its place");
    setTimeout(() => {
      if (!this.#closing) this.start();
    }, this.#pauseMs).unref();
  }
}

/** The connection of a server that an earlier node left, which ends; `undefined` when there is none to take over. */
async function takeOver(runDir: string, path: string): Promise<number | undefined> {
  const earlier = readRecord(runDir);
  const isMounted = mountAt(path) !== undefined;
  const fuse = earlier === undefined ? undefined : copyDescriptor(earlier.pid, earlier.startTicks, FUSE_FD);
  if (earlier !== undefined) {
    signalProcess(earlier.pid, earlier.startTicks, SIGKILL);
    // Two servers would share the page that has the request in hand.
    while (processStartTicks(earlier.pid) === earlier.startTicks) await delay(1);
  }
  if (fuse !== undefined && isMounted) return fuse;
  if (fuse !== undefined) closeSync(fuse);
  // Nobody answers there any more.
  unmountAll(path);
  rmSync(join(runDir, "view.request"), { force: true });
  return undefined;
}

function mountView(path: string): number {
  const fuse = openFuse();
  try {
    const options = `fd=${fuse},rootmode=40000,user_id=0,group_id=0,allow_other`;
    mount("dsec-view", path, TYPE, MS.RDONLY | MS.NOSUID | MS.NODEV | MS.NOEXEC, options);
    return fuse;
  } catch (error) {
    closeSync(fuse);
    throw noFuse(error);
  }
}

function openFuse(): number {
  try {
    return openSync("/dev/fuse", "r+");
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ENODEV", "ENXIO")) throw noFuse(error);
  }
  // Where it is a module, its device may appear only with it.
  spawnSync("modprobe", ["fuse"], { stdio: "ignore" });
  try {
    return openSync("/dev/fuse", "r+");
  } catch (error) {
    throw noFuse(error);
  }
}

function noFuse(cause: unknown): SandboxError {
  return new SandboxError("FailedPrecondition", "this node cannot show sandboxes their own limits: it has no FUSE", {
    cause,
    hint: "load the kernel module fuse, or start the node with --no-own-view: sandboxes then see the whole machine",
  });
}

function unmountAll(path: string): void {
  while (mountAt(path) !== undefined) unmount(path, MNT.DETACH);
}

interface ServerRecord {
  readonly pid: number;
  readonly startTicks: number;
}

function record(runDir: string, pid: number): void {
  const startTicks = processStartTicks(pid);
  if (startTicks === undefined) return;
  const written: ServerRecord = { pid, startTicks };
  const file = join(runDir, "view.json");
  writeFileSync(`${file}.new`, JSON.stringify(written), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** `undefined` when there is none, or a crash cut it short. */
function readRecord(runDir: string): ServerRecord | undefined {
  try {
    const { pid, startTicks } = JSON.parse(readFileSync(join(runDir, "view.json"), "utf8")) as Partial<ServerRecord>;
    if (!Number.isSafeInteger(pid) || !Number.isSafeInteger(startTicks)) return undefined;
    return { pid: Number(pid), startTicks: Number(startTicks) };
  } catch (error) {
    if (hasCode(error, "ENOENT") || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
