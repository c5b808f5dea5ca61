import type { ServerResponse } from "node:http";
import type {
  ErrorBody,
  FunctionTest as FunctionTestRequest,
  InvokeFunction,
  PrepareEvent,
  RuntimeView,
} from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import {
  bulkBytesOf,
  type FunctionCall,
  type FunctionChecker,
  type FunctionResult,
  type FunctionRun,
  type FunctionTest,
  type FunctionTestResult,
  type HeldResult,
} from "#core/functions.ts";
import { parseInvocationId } from "#core/ids.ts";
import type { RuntimeSummary } from "../../functions/runtimes.ts";
import { pooled } from "../../pool.ts";
import { bytesFrom, textOrBytes } from "../bytes.ts";
import { JSON_LINES } from "../event-forms.ts";
import { failureOf } from "../failure.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import { longLines } from "../json-lines.ts";
import { jsonPieces } from "../json-pieces.ts";
import { progressLines } from "../progress-lines.ts";
import type { CallScope } from "../scope.ts";
import { sendBytes } from "../stream.ts";
import { present } from "../views.ts";

type Names =
  | "startFunction"
  | "awaitFunction"
  | "dropFunction"
  | "invokeFunction"
  | "invokeMany"
  | "listRuntimes"
  | "prepareRuntime";

const CALLS_AT_ONCE = 16;
const PROGRAM_MODE = 0o755;
/** A reply with more bytes is sent in pieces: as one text it would stop everything else while it is made. */
const LONG_BYTES = 64 * 1024;

/** The calls about functions. No state of them stays here. */
export function functionHandlers(services: Services): Pick<Handlers, Names> {
  const { invoker, runtimes } = services;
  const invoke = async (project: string, request: InvokeFunction, signal: AbortSignal): Promise<HeldResult> =>
    invoker.invoke(await callOf(services, project, request, signal), signal);
  return {
    async invokeFunction({ body, principal: { project }, response, scope }) {
      using result = await invoke(project, body, scope.signal);
      if (!isLong(result)) return replyOf(result, textOrBytes);
      return sent(replyOf(result, asBytes), response, scope);
    },

    async startFunction({ body, principal: { project }, scope: { signal } }) {
      return { id: await invoker.start(await callOf(services, project, body, signal), signal) };
    },

    async awaitFunction({ params, principal: { project }, query: { waitMs = 0 }, response, scope }) {
      const id = parseInvocationId(params.call ?? "");
      const wait = { project, waitMs: scope.withinDeadline(waitMs) };
      using result = await invoker.nodeOf(id).waitInvocation(id, wait, scope.signal);
      if (result === undefined) return { id, state: "running" };
      if (!isLong(result)) return { id, state: "done", result: replyOf(result, textOrBytes) };
      return sent({ id, state: "done", result: replyOf(result, asBytes) }, response, scope);
    },

    async dropFunction({ params, principal: { project }, scope: { signal } }) {
      const id = parseInvocationId(params.call ?? "");
      await invoker.nodeOf(id).dropInvocation(id, project, signal);
    },

    async invokeMany({ body, principal: { project }, response, scope }) {
      const { calls, concurrency = CALLS_AT_ONCE } = body;
      const outcomes = pooled(calls.entries(), concurrency, ([index, request]) =>
        settled(index, invoke(project, request, scope.signal)),
      );
      await sendBytes(longLines(outcomes, lineOf), response, scope, JSON_LINES);
    },

    async listRuntimes({ principal: { project } }) {
      return { runtimes: (await runtimes.list(project)).map(runtimeView) };
    },

    async prepareRuntime(call) {
      await sendBytes(prepare(services, call), call.response, call.scope, JSON_LINES);
    },
  };
}

/** What came of one call of a batch. */
type Outcome =
  | { readonly index: number; readonly result: HeldResult }
  | { readonly index: number; readonly error: ErrorBody["error"] };

async function settled(index: number, result: Promise<HeldResult>): Promise<Outcome> {
  try {
    return { index, result: await result };
  } catch (error) {
    return { index, error: failureOf(error).body.error };
  }
}

/** A line of a batch's reply. The result is held until its last piece has been taken. */
function* lineOf(outcome: Outcome): Generator<Uint8Array, void, undefined> {
  if ("result" in outcome) {
    using result = outcome.result;
    yield* jsonPieces({ index: outcome.index, result: replyOf(result, asBytes) }, "\n");
  } else yield Buffer.from(`${JSON.stringify(outcome)}\n`);
}

function isLong(result: FunctionResult): boolean {
  return bulkBytesOf(result) > LONG_BYTES;
}

function asBytes(bytes: Uint8Array): Uint8Array {
  return bytes;
}

/** Sends a reply that is too long for one text, at the pace of its reader. The promise's value only fits the call's type: nothing is left to say. */
async function sent(value: object, response: ServerResponse, scope: CallScope): Promise<never> {
  await sendBytes(piecesOf(value), response, scope, "application/json; charset=utf-8");
  return undefined as never;
}

async function* piecesOf(value: object): AsyncGenerator<Uint8Array, void, undefined> {
  yield* jsonPieces(value);
}

function prepare(services: Services, call: Call<"prepareRuntime">): AsyncGenerator<Uint8Array> {
  const { params, principal, scope } = call;
  return progressLines(services, async (progress): Promise<PrepareEvent> => {
    const asked = { project: principal.project, signal: scope.signal, progress };
    return { runtime: runtimeView(await services.runtimes.prepare(params.runtime ?? "", asked)) };
  });
}

/** The call with its references resolved. Throws `InvalidArgument`, naming the field. */
async function callOf(
  { runtimes }: Services,
  project: string,
  request: InvokeFunction,
  signal: AbortSignal,
): Promise<FunctionCall> {
  if ((request.code === undefined) === (request.command === undefined)) {
    throw new SandboxError("InvalidArgument", "give either code or a command", { details: { field: "code" } });
  }
  const { runtime, limits } = await runtimes.resolve(request.runtime, { project, signal });
  const resolve = async (name: string) => (await runtimes.resolve(name, { project, signal })).runtime;
  const tests = (request.tests ?? []).map((test, index) => testOf(test, `tests.${index}`, resolve));
  return {
    project,
    runtime,
    code: request.code === undefined ? undefined : bytesFrom(request.code, "code"),
    command: request.command,
    files: Object.entries(request.files ?? {}).map(([name, content]) => ({
      name,
      mode: PROGRAM_MODE,
      bytes: bytesFrom(content, `files.${name}`),
    })),
    stdin: bytesFrom(request.stdin ?? "", "stdin"),
    args: request.args ?? [],
    env: request.env ?? {},
    limits: { ...limits, ...request.limits },
    outputs: request.outputs ?? [],
    tests: await Promise.all(tests),
    stopEarly: request.stopEarly ?? false,
    reuse: request.reuse ?? "cells",
  };
}

type Resolve = (name: string) => Promise<FunctionCall["runtime"]>;

async function testOf(
  { stdin, expected, checker }: FunctionTestRequest,
  field: string,
  resolve: Resolve,
): Promise<FunctionTest> {
  return {
    stdin: bytesFrom(stdin ?? "", `${field}.stdin`),
    expected: expected === undefined ? undefined : bytesFrom(expected, `${field}.expected`),
    checker: await checkerOf(checker ?? { type: "exact" }, `${field}.checker`, resolve),
  };
}

async function checkerOf(
  checker: NonNullable<FunctionTestRequest["checker"]>,
  field: string,
  resolve: Resolve,
): Promise<FunctionChecker> {
  if (checker.type !== "program") return checker;
  return { type: "program", runtime: await resolve(checker.runtime), code: bytesFrom(checker.code, `${field}.code`) };
}

/** The result with its bytes as `leaf` has them. */
function replyOf<Bytes>(
  { status, message, compile, run, files, tests }: FunctionResult,
  leaf: (bytes: Uint8Array) => Bytes,
) {
  return present({
    status,
    message,
    compile: compile === undefined ? undefined : { ...runView(compile, leaf), cached: compile.cached },
    run: run === undefined ? undefined : runView(run, leaf),
    files:
      files.length === 0
        ? undefined
        : Object.fromEntries(files.map(({ name, bytes }): [string, Bytes] => [name, leaf(bytes)])),
    tests: tests.length === 0 ? undefined : tests.map((test) => testView(test, leaf)),
  });
}

function testView<Bytes>({ verdict, message, run }: FunctionTestResult, leaf: (bytes: Uint8Array) => Bytes) {
  return present({ verdict, message, run: run === undefined ? undefined : runView(run, leaf) });
}

function runView<Bytes>(run: FunctionRun, leaf: (bytes: Uint8Array) => Bytes) {
  const { exitCode, signal, stdout, stderr, outputCut, wallMs, cpuMs, peakMemoryBytes } = run;
  return present({
    exitCode,
    signal,
    stdout: leaf(stdout),
    stderr: leaf(stderr),
    outputCut,
    wallMs,
    cpuMs,
    peakMemoryBytes,
  });
}

function runtimeView({ manifest, ready }: RuntimeSummary): RuntimeView {
  const { name, base, compile, limits } = manifest;
  return { name, base, ready, compiles: compile !== undefined, limits: { ...limits } };
}
