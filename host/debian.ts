import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync } from "node:fs";
import { createInterface } from "node:readline";
import { hasCode, SandboxError } from "#core/errors.ts";
import { suiteSources } from "#host/debian-sources.ts";
import { makeOwnedTemp, sweepOwnedTemps } from "#host/owned-temp.ts";
import { OWN_WORLD } from "./own-world.ts";

/** What to build, and who listens. */
export interface DebianOptions {
  /** Default: the release of this host. */
  readonly suite?: string | undefined;
  /** Packages beside the essential ones and apt. */
  readonly include: readonly string[];
  readonly signal?: AbortSignal;
  /** Hears each step of the build, as people read it. */
  readonly progress?: (line: string) => void;
}

/** A root file system being built. */
export interface DebianBuild extends AsyncDisposable {
  readonly suite: string;
  /** A tar archive. Ends early when the build fails: `finished` says so. */
  readonly tar: AsyncIterable<Uint8Array>;
  /** Resolves after success. Rejects with a typed error, the last lines of the builder in `details.log`. */
  readonly finished: Promise<void>;
}

/**
 * What each sandbox mounts its own files over: empty, since those of this host are nobody's business, and there, since what is
 * missing would be made anew in every sandbox.
 */
const EMPTY_PLACES = 'for name in hostname hosts resolv.conf; do : >"$1/etc/$name"; done';

/** Time to let the builder remove its own files after it was told to stop. */
const STOP_GRACE_MS = 20_000;
const LOG_LINES = 20;
const TEMP_PREFIX = "dsec-debian-";

/**
 * Starts `mmdebstrap` with the archives that this host's apt uses. Disposing ends it, and what it started, if it still runs.
 * `InvalidArgument` for an impossible suite or package name, `FailedPrecondition` when the host lacks what the build needs.
 */
export function startDebianBuild(options: DebianOptions): DebianBuild {
  const { suite, lines } = suiteSources(options.suite, options.include);
  // Part of Debian's minimal system, and not of Ubuntu's.
  const include = ["apt", ...options.include].join(",");
  const [program = "", ...args] = [
    // The builder mounts /proc and /sys into its tree and starts what packages bring.
    ...OWN_WORLD,
    "mmdebstrap",
    "--variant=minbase",
    "--mode=root",
    "--format=tar",
    `--include=${include}`,
    `--customize-hook=${EMPTY_PLACES}`,
    suite,
    "-",
    ...lines,
  ];
  // Below a directory that apt's own unprivileged user can reach: it fetches and unpacks lists with no more rights than that.
  const temp = makeOwnedTemp(tempParent(), TEMP_PREFIX);
  chmodSync(temp.path, 0o755);
  // A group of its own: stopping it stops the package manager's children too.
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: { ...passedOn(), LC_ALL: "C.UTF-8", DEBIAN_FRONTEND: "noninteractive", TMPDIR: temp.path },
  });
  const stop = (): void => void stopGroup(child);
  options.signal?.addEventListener("abort", stop, { once: true });
  const finished = watch(child, suite, options).finally(() => options.signal?.removeEventListener("abort", stop));
  // The tar stream is read first; a failure that comes before must not count as unhandled.
  finished.catch(() => undefined);
  const dispose = async (): Promise<void> => {
    await stopGroup(child);
    await temp[Symbol.asyncDispose]();
  };
  return { suite, tar: child.stdout, finished, [Symbol.asyncDispose]: dispose };
}

/** Removes what builds left whose process was killed. */
export async function sweepDebianBuilds(): Promise<void> {
  await sweepOwnedTemps(tempParent(), TEMP_PREFIX);
}

function tempParent(): string {
  return process.env.TMPDIR ?? "/var/tmp";
}

/** What the builder needs of our environment; tokens and the like stay out of the scripts of packages. */
function passedOn(): NodeJS.ProcessEnv {
  const isNeeded = (name: string): boolean => /^(PATH|HOME|(http|https|ftp|no|all)_proxy)$/i.test(name);
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => isNeeded(name)));
}

async function watch(child: ChildProcess, suite: string, { signal, progress }: DebianOptions): Promise<void> {
  const log: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      if (log.length > LOG_LINES) log.shift();
      progress?.(line.replace(/^I: /, ""));
    });
  }
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  signal?.throwIfAborted();
  if (code !== 0) throw failure(suite, log);
}

async function stopGroup(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  // A reader that left keeps the pipe full: the builder would never end.
  child.stdout?.destroy();
  killGroup(child.pid, "SIGTERM");
  const timer = setTimeout(killGroup, STOP_GRACE_MS, child.pid, "SIGKILL");
  await closed;
  clearTimeout(timer);
}

function killGroup(leader: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-leader, signal);
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}

function failure(suite: string, log: readonly string[]): SandboxError {
  const text = log.join("\n");
  if (/failed to execute mmdebstrap/.test(text)) {
    return new SandboxError("FailedPrecondition", "this host has no mmdebstrap", {
      hint: "apt-get install mmdebstrap",
    });
  }
  const missing = /Unable to locate package (\S+)/.exec(text)?.[1];
  const details = { log };
  if (missing !== undefined) {
    return new SandboxError("InvalidArgument", `${suite} has no package ${missing}`, {
      hint: "check its name",
      details,
    });
  }
  if (/No space left on device/.test(text)) {
    return new SandboxError("StorageFull", `no room to build ${suite}`, {
      hint: "make room in /var/tmp, or set TMPDIR",
      details,
    });
  }
  if (/404\s+Not Found|does not have a Release file/.test(text)) {
    return new SandboxError("InvalidArgument", `the archive of this host has no suite ${suite}`, {
      hint: "name a release of the host's own distribution",
      details,
    });
  }
  const isNetwork = /Temporary failure resolving|Could not connect|Connection (failed|timed out)|Failed to fetch/.test(
    text,
  );
  return new SandboxError(
    isNetwork ? "Unavailable" : "Internal",
    `building ${suite} failed: ${log.at(-1) ?? "no output"}`,
    {
      hint: isNetwork ? "check that apt-get update works on this host" : "details.log has the last lines of mmdebstrap",
      details,
    },
  );
}
