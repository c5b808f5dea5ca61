import type { ByteLimits } from "#core/bytes/byte-budget.ts";
import type { CellFile } from "#core/cells.ts";
import { separate } from "#core/concurrency/bulk.ts";
import type { SandboxId } from "#core/ids.ts";
import type { LayerDigest, Resources } from "#core/sandbox.ts";

/** How a call ended. `system-error` is ours: the code is not to blame, and the same call may succeed. */
export const FUNCTION_STATUSES = [
  "ok",
  "compile-error",
  "runtime-error",
  "time-limit",
  "memory-limit",
  "output-limit",
  "system-error",
] as const;
export type FunctionStatus = (typeof FUNCTION_STATUSES)[number];

/** What one call may use. */
export interface FunctionLimits {
  /** Processor time of the compiler. */
  readonly compileMs: number;
  /** Processor time of a run, of all its processes together. Wall time may be `wallMsOf` of it. */
  readonly runMs: number;
  readonly memoryMiB: number;
  /** Of stdout and of stderr each; a run that writes more is ended there. */
  readonly outputBytes: number;
  readonly pids: number;
}

/**
 * The longest a run may last by the clock, without the time in which it waited for a processor: it decides only about programs that
 * wait for something else.
 */
export function wallMsOf(cpuMs: number): number {
  return 3 * cpuMs + 5_000;
}

/** How programs of one kind are made and run: all that an edge needs to know, with references resolved. */
export interface FunctionRuntime {
  readonly name: string;
  /** Lowest first. */
  readonly layers: readonly LayerDigest[];
  readonly env: Readonly<Record<string, string>>;
  /** Name of the file that `code` becomes. */
  readonly source: string;
  /** What makes `outputs` out of the files of the call; undefined: nothing needs to. */
  readonly compile:
    | { readonly argv: readonly string[]; readonly outputs: readonly string[]; readonly memoryMiB: number }
    | undefined;
  /** `{memoryMiB}` in a word stands for the call's limit. The call's own arguments follow. */
  readonly run: readonly string[];
  /** What is there before a call: a server that forks programs, or a started program that waits for its words. */
  readonly warm: FunctionWarmth | undefined;
}

/** How a runtime is ready before a call. `script` is the standard input of a fork server, the last argument of a program. */
export interface FunctionWarmth {
  readonly kind: "fork" | "start";
  readonly argv: readonly string[];
  readonly script: string;
}

/** How an answer is held against what was expected. */
export type FunctionChecker =
  | { readonly type: "exact" }
  /** Words between white space are the same. */
  | { readonly type: "tokens" }
  /** Words that are numbers may differ by so much, absolutely or relatively; others are the same. */
  | { readonly type: "numbers"; readonly tolerance: number }
  /** A program of a runtime: finds the files `input`, `expected` and `output`; it accepts by exit status 0, rejects by 1. */
  | { readonly type: "program"; readonly runtime: FunctionRuntime; readonly code: Uint8Array };

/** One input of a program that is judged. */
export interface FunctionTest {
  readonly stdin: Uint8Array;
  /** Undefined: whatever it prints. */
  readonly expected: Uint8Array | undefined;
  readonly checker: FunctionChecker;
}

/** One call. */
export interface FunctionCall {
  readonly project: string;
  readonly runtime: FunctionRuntime;
  /** Exactly one of both. */
  readonly code: Uint8Array | undefined;
  readonly command: readonly string[] | undefined;
  readonly files: readonly CellFile[];
  readonly stdin: Uint8Array;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: FunctionLimits;
  /** Names of files to return; all together have `OUTPUT_FILES_LIMIT_BYTES`. */
  readonly outputs: readonly string[];
  /** With tests, `stdin` is not used: each has its own. */
  readonly tests: readonly FunctionTest[];
  /** Runs no test after the first that was not accepted. */
  readonly stopEarly: boolean;
  /** `never`: in a container that is made for this call and destroyed after it. */
  readonly reuse: "cells" | "never";
}

/** Of all files that a call returns. */
export const OUTPUT_FILES_LIMIT_BYTES = 16 * 1024 * 1024;

/** Of stdout and stderr of all tests of a call, as they are returned: each test has the same share, half of it for each. */
export const TESTS_OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;

/** A program's life: of the compiler or of a run. */
export interface FunctionRun {
  /** Present exactly when it exited by itself. */
  readonly exitCode: number | undefined;
  /** `SIGKILL`, …: present exactly when a signal ended it. */
  readonly signal: string | undefined;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** Whether output was cut at its limit, or at a test's share of what is returned. */
  readonly outputCut: boolean;
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly peakMemoryBytes: number;
}

/** What became of a call. */
export interface FunctionResult {
  readonly status: FunctionStatus;
  /** Why, where the status does not say it all. */
  readonly message: string | undefined;
  readonly compile: (FunctionRun & { readonly cached: boolean }) | undefined;
  /** Undefined with tests, and when nothing was run. */
  readonly run: FunctionRun | undefined;
  readonly files: readonly CellFile[];
  /** One for each test, in order. */
  readonly tests: readonly FunctionTestResult[];
}

/** `skipped`: not run, because an earlier one was not accepted. */
export type FunctionVerdict = "accepted" | "wrong-answer" | "skipped" | Exclude<FunctionStatus, "ok" | "compile-error">;

/** What became of one test. */
export interface FunctionTestResult {
  readonly verdict: FunctionVerdict;
  readonly message: string | undefined;
  readonly run: FunctionRun | undefined;
}

/** A result that counts as held for its project until it is disposed of, or its call's signal aborts: whoever has passed it on disposes. */
export type HeldResult = FunctionResult & Disposable;

/** Bytes of a result, or of what a call brought. */
export function bulkBytesOf(value: FunctionCall | FunctionResult): number {
  return separate(value).bytes.reduce((sum, { length }) => sum + length, 0);
}

/** The most that results may hold on a node, of which one project may have a quarter. */
export function resultLimits(totalBytes: number): Omit<ByteLimits, "waiting"> {
  return { what: "results", totalBytes, projectBytes: Math.floor(totalBytes / 4) };
}

/** Carries out calls on one node, each in a cell of its own. */
export interface Functions extends AsyncDisposable {
  /**
   * Resolves with what became of it, whatever the code does. Rejects with `Overloaded` when too many wait, `NodeFull` when the node has no
   * memory for functions, the signal's reason when that comes first, and `InvalidArgument` for what no program could be given.
   * Calls begin as results are disposed of: what is held is bounded.
   */
  invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult>;
  readonly load: FunctionLoad;
  /** Ids of the containers of the pools, as the container backend knows them. */
  readonly containers: ReadonlySet<string>;
  /** Gives back what no call needs now. */
  shrink(): Promise<void>;
}

/** How busy the functions of a node are. */
export interface FunctionLoad {
  readonly running: number;
  readonly queued: number;
}

/** What functions need of their edge: a promise of the node's resources for each container. */
export interface FunctionHost {
  /** Throws `NodeFull`. */
  lease(resources: Resources): FunctionLease;
  /** Whether the node has less memory left than it keeps: what waits for calls is given back then. */
  isShort(): boolean;
}

/** A container's name, place and share of the node. */
export interface FunctionLease {
  readonly id: SandboxId;
  readonly slot: number;
  /** Called once nothing of the container is left. */
  release(): void;
}
