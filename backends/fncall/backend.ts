import { createHash } from "node:crypto";
import type { Backend } from "#core/backend.ts";
import { ByteBudget } from "#core/bytes/byte-budget.ts";
import type { CellFile, CellLimits, CellRequest, CellResult } from "#core/cells.ts";
import type { Clock } from "#core/clock.ts";
import { separate } from "#core/concurrency/bulk.ts";
import { asSandboxError } from "#core/errors.ts";
import {
  bulkBytesOf,
  type FunctionCall,
  type FunctionHost,
  type FunctionLimits,
  type FunctionLoad,
  type FunctionResult,
  type FunctionRuntime,
  type Functions,
  type HeldResult,
  OUTPUT_FILES_LIMIT_BYTES,
  resultLimits,
  wallMsOf,
} from "#core/functions.ts";
import { type Compilation, CompileCache, type Compiled } from "./compiled.ts";
import { judge } from "./judge.ts";
import { messageOf, runOf, statusOf } from "./outcome.ts";
import { FunctionPool, type PoolLimits } from "./pool.ts";
import { COMPILE_OUTPUT_BYTES, mostBytesOf } from "./room.ts";
import { FunctionTurns } from "./turns.ts";

/** What an operator decides about functions of a node. */
export interface FunctionSettings {
  /** Calls that run at once. */
  readonly running: number;
  /** Of all calls that run. */
  readonly memoryMiB: number;
  readonly queued: number;
  /** Of results of calls that run, as large as they may become, and of those that nobody has taken. */
  readonly resultBytes: number;
  readonly cpus: number;
  readonly cacheBytes: number;
  readonly pools: PoolLimits;
}

/** What functions are made of. */
export interface FunctionOptions {
  /** Makes the containers; the caller keeps it, and closes it after the functions. */
  readonly backend: Backend;
  readonly host: FunctionHost;
  readonly settings: FunctionSettings;
  readonly clock: Clock;
  readonly log: (line: string) => void;
}

/** A call that the node lost is carried out once more: it left nothing behind. */
const TRIES = 2;
const COMPILE_PIDS = 256;
const CHECKER_LIMITS: FunctionLimits = {
  compileMs: 30_000,
  runMs: 10_000,
  memoryMiB: 256,
  outputBytes: 65_536,
  pids: 64,
};
const TIDY_MS = 5_000;
/** Files of a call, in memory beside what it uses itself. */
const SPACE_MIB = 256;
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const BASE_ENV = { PATH, HOME: "/work", LANG: "C.UTF-8" };

/** Functions over a backend of containers: pools by runtime, turns by project, a cache of what was compiled. */
export function openFunctions(options: FunctionOptions): Functions {
  return new ContainerFunctions(options);
}

class ContainerFunctions implements Functions {
  readonly #options: FunctionOptions;
  readonly #pools = new Map<string, FunctionPool>();
  readonly #once = new Set<FunctionPool>();
  readonly #turns: FunctionTurns;
  readonly #cache: CompileCache;
  readonly #results: ByteBudget;
  #timer: Disposable;
  #closed = false;

  constructor(options: FunctionOptions) {
    this.#options = options;
    this.#turns = new FunctionTurns(options.settings);
    this.#cache = new CompileCache(options.settings.cacheBytes);
    const { queued: waiting, resultBytes } = options.settings;
    this.#results = new ByteBudget({ ...resultLimits(resultBytes), waiting });
    this.#timer = this.#tidyLater();
  }

  get load(): FunctionLoad {
    return { running: this.#turns.running, queued: this.#turns.queued + this.#results.waiting };
  }

  get containers(): ReadonlySet<string> {
    return new Set([...this.#pools.values(), ...this.#once].flatMap((pool) => pool.containers));
  }

  async invoke(call: FunctionCall, signal: AbortSignal): Promise<HeldResult> {
    const hold = await this.#results.take(call.project, mostBytesOf(call), signal);
    const dispose = () => hold[Symbol.dispose]();
    try {
      const result = await this.#carryOut(call, signal);
      hold.resize(bulkBytesOf(result));
      return { ...result, [Symbol.dispose]: dispose };
    } catch (error) {
      dispose();
      throw error;
    }
  }

  async #carryOut(call: FunctionCall, signal: AbortSignal): Promise<FunctionResult> {
    signal.throwIfAborted();
    const made = await this.#compile(call, signal);
    if (made?.accepted === false) return refusal(made);
    const compile = made === undefined ? undefined : { ...made.run, cached: made.cached };
    const files = filesOf(call, made);
    const request = runRequest(call, files);
    if (call.tests.length === 0) {
      const result = await this.#run(call, { ...request, input: call.stdin }, signal);
      return {
        status: statusOf(result),
        message: lacking(result) ?? messageOf(result),
        compile,
        run: runOf(result),
        files: result.files,
        tests: [],
      };
    }
    const tests = await judge(call, {
      run: (input) => this.#run(call, { ...request, input, wanted: [] }, signal),
      check: (checker, test, output) => this.#check(call, checker, { test, output }, signal),
    });
    const failed = tests.find(
      ({ verdict }) => verdict !== "accepted" && verdict !== "wrong-answer" && verdict !== "skipped",
    );
    const status = failed === undefined ? "ok" : statusOfVerdict(failed.verdict);
    return { status, message: failed?.message, compile, run: undefined, files: [], tests };
  }

  async shrink(): Promise<void> {
    const unused = [...this.#pools].filter(([, pool]) => !pool.busy);
    for (const [key] of unused) this.#pools.delete(key);
    await Promise.all(unused.map(([, pool]) => pool.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    this.#timer[Symbol.dispose]();
    await Promise.all([...this.#pools.values(), ...this.#once].map((pool) => pool.close()));
  }

  /** What the run needs of a compiler; undefined when it needs none. */
  async #compile(
    call: FunctionCall,
    signal: AbortSignal,
  ): Promise<(Compiled & { readonly cached: boolean }) | undefined> {
    const { compile } = call.runtime;
    if (compile === undefined || call.code === undefined) return undefined;
    const files = filesOf(call, undefined);
    const limits: CellLimits = {
      cpuMs: call.limits.compileMs,
      wallMs: wallMsOf(call.limits.compileMs),
      memoryBytes: Math.max(compile.memoryMiB, call.limits.memoryMiB) * 1024 * 1024,
      outputBytes: COMPILE_OUTPUT_BYTES,
      fileBytes: 4 * OUTPUT_FILES_LIMIT_BYTES,
      pids: COMPILE_PIDS,
    };
    const request: CellRequest = {
      argv: compile.argv,
      env: { ...BASE_ENV, ...call.runtime.env },
      files,
      input: new Uint8Array(),
      wanted: compile.outputs,
      limits,
    };
    return this.#cache.get(keyOf([call.runtime.layers, request]), async () =>
      compilationOf(await this.#run(call, request, signal, true)),
    );
  }

  async #check(
    call: FunctionCall,
    checker: Extract<FunctionCall["tests"][number]["checker"], { type: "program" }>,
    { test, output }: { readonly test: FunctionCall["tests"][number]; readonly output: Uint8Array },
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const { run, status } = await this.#carryOut(
      {
        ...call,
        runtime: checker.runtime,
        code: checker.code,
        command: undefined,
        args: ["input", "expected", "output"],
        files: [
          { name: "input", mode: 0o644, bytes: test.stdin },
          { name: "expected", mode: 0o644, bytes: test.expected ?? new Uint8Array() },
          { name: "output", mode: 0o644, bytes: output },
        ],
        env: {},
        stdin: new Uint8Array(),
        limits: CHECKER_LIMITS,
        outputs: [],
        tests: [],
      },
      signal,
    );
    return status === "ok" || status === "runtime-error" ? run?.exitCode : undefined;
  }

  /** One program in one cell, at its turn. What the node is to blame for is tried again, then told as a fault. */
  async #run(call: FunctionCall, request: CellRequest, signal: AbortSignal, isCompiler = false): Promise<CellResult> {
    const memoryMiB = Math.ceil(request.limits.memoryBytes / (1024 * 1024));
    return this.#turns.run(call.project, memoryMiB, () => this.#tries(call, request, signal, isCompiler), signal);
  }

  async #tries(
    call: FunctionCall,
    request: CellRequest,
    signal: AbortSignal,
    isCompiler: boolean,
  ): Promise<CellResult> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const result = await this.#inCell(call, request, signal, isCompiler);
        if (result.verdict !== "fault" || attempt === TRIES) return result;
      } catch (error) {
        signal.throwIfAborted();
        const { kind } = asSandboxError(error);
        if (kind !== "SandboxLost" || attempt === TRIES) throw error;
      }
    }
  }

  async #inCell(
    call: FunctionCall,
    request: CellRequest,
    signal: AbortSignal,
    isCompiler: boolean,
  ): Promise<CellResult> {
    // A compiler and a command are programs of their own, whatever the runtime keeps warm.
    const { runtime } = call;
    const isCold = isCompiler || call.command !== undefined || call.reuse === "never";
    const fit: FunctionRuntime = isCold ? { ...runtime, warm: undefined } : runtime;
    if (call.reuse !== "never") return this.#pool(fit).run(request, signal);
    const pool = this.#newPool(fit, { floor: 0, ceiling: 0, idleMs: 0 });
    this.#once.add(pool);
    try {
      return await pool.run(request, signal);
    } finally {
      await pool.close();
      this.#once.delete(pool);
    }
  }

  #pool(runtime: FunctionRuntime): FunctionPool {
    const key = keyOf([runtime.layers, runtime.env, runtime.warm]);
    const known = this.#pools.get(key);
    if (known !== undefined) return known;
    const pool = this.#newPool(runtime, this.#options.settings.pools);
    this.#pools.set(key, pool);
    return pool;
  }

  #newPool(runtime: FunctionRuntime, limits: PoolLimits): FunctionPool {
    const { backend, host, settings, clock, log } = this.#options;
    const { cpus, memoryMiB } = settings;
    return new FunctionPool({
      backend,
      host,
      runtime: { ...runtime, env: { ...BASE_ENV, ...runtime.env } },
      cpus,
      memoryMiB: memoryMiB + SPACE_MIB,
      spaceMiB: SPACE_MIB,
      limits,
      clock,
      log,
    });
  }

  #tidyLater(): Disposable {
    return this.#options.clock.after(TIDY_MS, () => {
      if (this.#options.host.isShort()) void this.shrink();
      for (const [key, pool] of this.#pools) {
        if (!pool.idle) continue;
        this.#pools.delete(key);
        void pool.close();
      }
      if (!this.#closed) this.#timer = this.#tidyLater();
    });
  }
}

function keyOf(value: unknown): string {
  const { value: plain, bytes } = separate(value);
  const hash = createHash("sha256").update(JSON.stringify(plain));
  for (const each of bytes) hash.update(each);
  return hash.digest("hex");
}

function filesOf({ code, files, runtime }: FunctionCall, made: Compiled | undefined): readonly CellFile[] {
  if (made !== undefined) return [...files, ...made.outputs];
  return code === undefined ? files : [...files, { name: runtime.source, mode: 0o644, bytes: code }];
}

function runRequest(
  { args, command, env, limits, outputs, runtime }: FunctionCall,
  files: readonly CellFile[],
): Omit<CellRequest, "input"> {
  return {
    argv: [...(command ?? runtime.run.map((word) => word.replace("{memoryMiB}", String(limits.memoryMiB)))), ...args],
    env: { ...BASE_ENV, ...runtime.env, ...env },
    files,
    wanted: outputs,
    limits: {
      cpuMs: limits.runMs,
      wallMs: wallMsOf(limits.runMs),
      memoryBytes: limits.memoryMiB * 1024 * 1024,
      outputBytes: limits.outputBytes,
      fileBytes: OUTPUT_FILES_LIMIT_BYTES,
      pids: limits.pids,
    },
  };
}

function compilationOf(result: CellResult): Compilation {
  const status = statusOf(result);
  const accepted = status === "ok" && result.missing.length === 0 && result.tooLarge.length === 0;
  // What time and memory decided, another try might decide otherwise.
  const lasting = status === "ok" || status === "runtime-error";
  return { run: runOf(result), outputs: result.files, accepted, lasting, status };
}

function refusal(made: Compiled & { readonly cached: boolean }): FunctionResult {
  const compile = { ...made.run, cached: made.cached };
  const isOurs = made.status === "system-error";
  const why = made.status === "ok" ? "the compiler made no program, or too large a one" : undefined;
  const limit = made.status === "runtime-error" || isOurs ? undefined : `the compiler reached its ${made.status}`;
  return {
    status: isOurs ? "system-error" : "compile-error",
    message: why ?? limit,
    compile,
    run: undefined,
    files: [],
    tests: [],
  };
}

function lacking({ missing, tooLarge }: CellResult): string | undefined {
  if (tooLarge.length > 0) return `too large to return: ${tooLarge.join(", ")}`;
  return missing.length > 0 ? `not there to return: ${missing.join(", ")}` : undefined;
}

function statusOfVerdict(verdict: FunctionResult["tests"][number]["verdict"]): FunctionResult["status"] {
  return verdict === "accepted" || verdict === "wrong-answer" || verdict === "skipped" ? "ok" : verdict;
}
