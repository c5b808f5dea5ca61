import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { PassThrough, pipeline, type Readable } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import { OWN_WORLD } from "../own-world.ts";
import { findProgram } from "../programs.ts";
import type { Gateway } from "./gateway.ts";

/** A program that talks to servers nobody trusts, and what it may take. */
export interface ConfinedOptions {
  /** The program and its arguments; no shell sees them. */
  readonly words: readonly [program: string, ...words: string[]];
  /** Debian's package that has the program, for the hint when it is missing. */
  readonly package: string;
  /** Its directory and its HOME: it belongs to the caller, and what the program writes goes there. */
  readonly dir: string;
  /** Variables beside PATH, HOME, TMPDIR and those of proxies and certificates. */
  readonly env?: Readonly<Record<string, string>>;
  /** No file of it grows beyond. */
  readonly maxFileBytes: number;
  /** It reads what is hostile and talks to nobody: a user of its own, which `dir` belongs to, no network, and no more memory than that. */
  readonly alone?: { readonly uid: number; readonly memoryMiB: number };
  readonly signal: AbortSignal;
  /** Hears each line of stderr. */
  readonly onLine?: (line: string) => void;
  /** Its only way to the network; undefined: it has this host's. */
  readonly gateway?: Gateway | undefined;
  /** Asked twice a second; a rejection ends the program, and the run rejects with it. */
  readonly guard?: () => Promise<void>;
}

/** How a program ended. */
export interface ConfinedEnd {
  readonly code: number | null;
  /** The last lines of stderr. */
  readonly log: readonly string[];
}

/** A running program. Disposing ends it with all that it started, and waits for that. */
export interface Confined extends AsyncDisposable {
  readonly stdout: Readable;
  /** Rejects with the signal's reason or the guard's rejection; a status other than 0 is no rejection. */
  readonly ended: Promise<ConfinedEnd>;
}

/** No capability, and none to be had from a set-user-ID file: root's files are all that root's id still opens. */
const NO_POWERS = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"];
const MIB = 1024 * 1024;
const GUARD_MS = 500;
const LOG_LINES = 20;
/** What servers say ends up in lines: one that never ends must not fill the memory. */
const LINE_BYTES = 500;
const PASSED_ON = /^(PATH|SSL_CERT_FILE|SSL_CERT_DIR|(http|https|ftp|no|all)_proxy)$/i;

/** Starts a program as `ConfinedOptions` says. Throws `FailedPrecondition` on a host without it. */
export function startConfined(options: ConfinedOptions): Confined {
  const { signal, dir, words } = options;
  signal.throwIfAborted();
  if (findProgram(words[0]) === undefined) {
    throw new SandboxError("FailedPrecondition", `this node has no ${words[0]}`, {
      hint: `apt-get install ${options.package} on the node`,
    });
  }
  const [first = "", ...rest] = [...(options.gateway?.words ?? []), ...OWN_WORLD, ...bounds(options), ...words];
  const child = spawn(first, rest, {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: dir,
    env: { ...passedOn(), LC_ALL: "C.UTF-8", HOME: dir, TMPDIR: dir, ...options.env, ...options.gateway?.env },
  });
  const ended = watch(child, options);
  // Its output is often read first; a failure that comes before must not count as unhandled.
  ended.catch(() => undefined);
  // Node drops what nobody reads of a program that has ended: here it waits.
  const stdout = new PassThrough();
  pipeline(child.stdout, stdout, () => undefined);
  return {
    stdout,
    ended,
    async [Symbol.asyncDispose]() {
      stdout.destroy();
      child.kill("SIGKILL");
      await ended.catch(() => undefined);
    },
  };
}

/** Runs a program to its end and returns what it printed. `TooLarge` when that is more than `maxBytes`. */
export async function runConfined(
  options: ConfinedOptions,
  maxBytes: number,
): Promise<ConfinedEnd & { readonly output: Buffer }> {
  await using running = startConfined(options);
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of running.stdout) {
    parts.push(part as Buffer);
    bytes += (part as Buffer).length;
    if (bytes > maxBytes)
      throw new SandboxError("TooLarge", `${options.words[0]} answered more than ${maxBytes} bytes`);
  }
  return { ...(await running.ended), output: Buffer.concat(parts) };
}

function bounds({ alone, maxFileBytes }: ConfinedOptions): readonly string[] {
  const limits = ["prlimit", `--fsize=${maxFileBytes}`];
  if (alone === undefined) return ["setpriv", ...NO_POWERS, ...limits, "--"];
  const { uid, memoryMiB } = alone;
  const user = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
  return [
    "unshare",
    "--net",
    "--ipc",
    "--",
    "setpriv",
    ...user,
    ...NO_POWERS,
    ...limits,
    `--as=${memoryMiB * MIB}`,
    "--",
  ];
}

async function watch(child: ChildProcess, options: ConfinedOptions): Promise<ConfinedEnd> {
  const log: string[] = [];
  let stopped: { readonly reason: unknown } | undefined;
  const stop = (reason: unknown): void => {
    stopped ??= { reason };
    // A reader that left keeps the pipe full: the program would never end.
    child.stdout?.destroy();
    child.kill("SIGKILL");
  };
  const onAbort = (): void => stop(options.signal.reason);
  options.signal.addEventListener("abort", onAbort, { once: true });
  const timer = setInterval(() => options.guard?.().catch(stop), GUARD_MS);
  try {
    const closed = once(child, "close");
    if (child.stderr !== null) {
      eachLine(child.stderr, (line) => {
        log.push(line);
        if (log.length > LOG_LINES) log.shift();
        options.onLine?.(line);
      });
    }
    const [code] = await closed;
    if (stopped !== undefined) throw stopped.reason;
    return { code: typeof code === "number" ? code : null, log };
  } finally {
    clearInterval(timer);
    options.signal.removeEventListener("abort", onAbort);
  }
}

/** Calls back with each line of a stream: without control characters, the end of long ones cut off. A carriage return ends a line too: progress is drawn with it. */
export function eachLine(stream: Readable, onLine: (line: string) => void): void {
  let rest = "";
  const emit = (line: string): void => {
    const text = line
      .slice(0, LINE_BYTES)
      .replaceAll(/\p{Cc}/gu, " ")
      .trim();
    if (text !== "") onLine(text);
  };
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    const lines = (rest + chunk).split(/[\r\n]/);
    rest = (lines.pop() ?? "").slice(0, LINE_BYTES);
    for (const line of lines) emit(line);
  });
  stream.on("end", () => emit(rest));
  stream.on("error", () => undefined);
}

/** Tokens and the like of this process stay out of it. */
function passedOn(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => PASSED_ON.test(name)));
}
