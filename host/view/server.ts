import { spawn, spawnSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { NodeTree } from "#host/cgroup/layout.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { mountAt } from "#host/sys/mountinfo.ts";
import { copyDescriptor, signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { Follower } from "./follower.ts";
import { readViewRecord, writeViewRecord } from "./record.ts";
import { viewTrees } from "./trees.ts";

/** What sandboxes of one node see of the machine, as files in a directory of the host. */
export interface View extends AsyncDisposable {
  /** Holds `meminfo`, `cpuinfo`, …; each shows the reader its own sandbox, and nothing to readers in none. */
  readonly path: string;
  /** Of the server, for tests; another one after each of its deaths. */
  readonly pid: number;
  /** Of who holds the connection beside it, likewise. */
  readonly holderPid: number;
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

/**
 * Serves the view, or takes over the one that an earlier node left. The connection with the kernel is held here, by the server and by a
 * process that does nothing else: it breaks, for every live sandbox, only when all three die. Each is followed by another.
 * `FailedPrecondition` when this host has no FUSE, or the program was not built. When this resolves the files can be read.
 */
export async function openView(options: ViewOptions): Promise<View> {
  const path = join(options.runDir, "view");
  const fuse = (await takeOver(options.runDir, path)) ?? mountView(path);
  const view = new ServedView(options, path, fuse);
  try {
    await view.start();
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
  readonly #server: Follower;
  readonly #holder: Follower;

  constructor(options: ViewOptions, path: string, fuse: number) {
    const { node, sandboxesDir, runDir, trees, log } = options;
    this.#options = options;
    this.path = path;
    this.#fuse = fuse;
    const words = [node, sandboxesDir, join(runDir, "view.request"), ...viewTrees(trees)];
    this.#server = this.#follower(words, () =>
      log("what serves the view of sandboxes has ended; another takes its place"),
    );
    this.#holder = this.#follower(["--hold"], () =>
      log("what holds the view of sandboxes has ended; another takes its place"),
    );
  }

  get pid(): number {
    return this.#server.pid;
  }

  get holderPid(): number {
    return this.#holder.pid;
  }

  /** Resolves when the files can be found, and are held; rejects when the first server does not get so far. */
  async start(): Promise<void> {
    const { promise: failed, reject } = Promise.withResolvers<never>();
    const fail = (cause: unknown) =>
      reject(
        new SandboxError("FailedPrecondition", "the server of what sandboxes see does not start", {
          cause,
          hint: "build it with ./dsec or make -C host/view, or start the node with --no-own-view",
        }),
      );
    const both = [this.#server.start(), this.#holder.start()];
    for (const child of both) child.once("error", fail).once("exit", fail);
    await Promise.race([stat(join(this.path, "meminfo")), failed]);
    for (const child of both) child.off("error", fail).off("exit", fail);
  }

  /** Lets go of a view that nobody can read. */
  async abandon(): Promise<void> {
    await Promise.all([this.#server.end(0), this.#holder.end(0)]);
    // With its last descriptor the connection ends, and every wait for it.
    closeSync(this.#fuse);
    this.#remove();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const both = [this.#server, this.#holder];
    for (const follower of both) follower.leave();
    closeSync(this.#fuse);
    if (this.#options.isInUse()) return;
    unmountAll(this.path);
    // Without their file system they end by themselves.
    await Promise.all(both.map((follower) => follower.end()));
    this.#remove();
  }

  #follower(words: readonly string[], followed: () => void): Follower {
    const { binary, cgroups, runDir } = this.#options;
    return new Follower({
      spawn: () =>
        spawn(binary, words, {
          // A session of its own: it outlives this process and is not meant by signals of its terminal.
          detached: true,
          stdio: ["ignore", "ignore", "ignore", this.#fuse],
          env: { DSEC_RUN_DIR: runDir },
          cwd: "/",
        }),
      started: (pid) => {
        for (const dir of cgroups) writeFileSync(join(dir, "cgroup.procs"), String(pid), { flag: "r+" });
        writeViewRecord(runDir, { server: this.#server.pid, holder: this.#holder.pid });
      },
      followed,
    });
  }

  #remove(): void {
    unmountAll(this.path);
    for (const name of ["view.json", "view.json.new", "view.request"])
      rmSync(join(this.#options.runDir, name), { force: true });
    rmdirSync(this.path);
  }
}

/** The connection of those that an earlier node left, who end; `undefined` when there is none to take over. */
async function takeOver(runDir: string, path: string): Promise<number | undefined> {
  const { server, holder } = readViewRecord(runDir);
  const isMounted = mountAt(path) !== undefined;
  let fuse: number | undefined;
  for (const earlier of [server, holder]) {
    if (earlier === undefined) continue;
    fuse ??= copyDescriptor(earlier.pid, earlier.startTicks, FUSE_FD);
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
  // Not before: of a view that nobody serves at the moment, the question what is there waits for the next server.
  mkdirSync(path, { recursive: true, mode: 0o700 });
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
