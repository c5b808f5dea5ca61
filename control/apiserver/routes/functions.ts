import type {
  FunctionReply,
  FunctionTest as FunctionTestRequest,
  InvokeFunction,
  InvokeManyEvent,
  PrepareEvent,
  RuntimeView,
  TextOrBytes,
} from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type {
  FunctionCall,
  FunctionChecker,
  FunctionResult,
  FunctionRun,
  FunctionTest,
  FunctionTestResult,
} from "#core/functions.ts";
import { parseInvocationId } from "#core/ids.ts";
import type { RuntimeSummary } from "../../functions/runtimes.ts";
import { pooled } from "../../pool.ts";
import { bytesFrom, textOrBytes } from "../bytes.ts";
import { JSON_LINES } from "../event-forms.ts";
import { failureOf } from "../failure.ts";
import type { Call, Handlers, Services } from "../handler.ts";
import { jsonLines } from "../json-lines.ts";
import { progressLines } from "../progress-lines.ts";
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

/** The calls about functions. No state of them stays here. */
export function functionHandlers(services: Services): Pick<Handlers, Names> {
  const { invoker, runtimes } = services;
  const invoke = async (project: string, request: InvokeFunction, signal: AbortSignal): Promise<FunctionReply> =>
    replyOf(await invoker.invoke(await callOf(services, project, request, signal), signal));
  return {
    invokeFunction: ({ body, principal: { project }, scope: { signal } }) => invoke(project, body, signal),

    async startFunction({ body, principal: { project }, scope: { signal } }) {
      return { id: await invoker.start(await callOf(services, project, body, signal), signal) };
    },

    async awaitFunction({ params, principal: { project }, query: { waitMs = 0 }, scope }) {
      const id = parseInvocationId(params.call ?? "");
      const wait = { project, waitMs: scope.withinDeadline(waitMs) };
      const result = await invoker.nodeOf(id).waitInvocation(id, wait, scope.signal);
      return result === undefined ? { id, state: "running" } : { id, state: "done", result: replyOf(result) };
    },

    async dropFunction({ params, principal: { project }, scope: { signal } }) {
      const id = parseInvocationId(params.call ?? "");
      await invoker.nodeOf(id).dropInvocation(id, project, signal);
    },

    async invokeMany({ body, principal: { project }, response, scope }) {
      const { calls, concurrency = CALLS_AT_ONCE } = body;
      const events = pooled(calls.entries(), concurrency, ([index, request]) =>
        settled(index, invoke(project, request, scope.signal)),
      );
      await sendBytes(
        jsonLines(events, (event) => event),
        response,
        scope,
        JSON_LINES,
      );
    },

    async listRuntimes({ principal: { project } }) {
      return { runtimes: (await runtimes.list(project)).map(runtimeView) };
    },

    async prepareRuntime(call) {
      await sendBytes(prepare(services, call), call.response, call.scope, JSON_LINES);
    },
  };
}

async function settled(index: number, reply: Promise<FunctionReply>): Promise<InvokeManyEvent> {
  try {
    return { index, result: await reply };
  } catch (error) {
    return { index, error: failureOf(error).body.error };
  }
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

function replyOf({ status, message, compile, run, files, tests }: FunctionResult): FunctionReply {
  return present({
    status,
    message,
    compile: compile === undefined ? undefined : { ...runView(compile), cached: compile.cached },
    run: run === undefined ? undefined : runView(run),
    files:
      files.length === 0
        ? undefined
        : Object.fromEntries(files.map(({ name, bytes }): [string, TextOrBytes] => [name, textOrBytes(bytes)])),
    tests: tests.length === 0 ? undefined : tests.map(testView),
  });
}

function testView({ verdict, message, run }: FunctionTestResult) {
  return present({ verdict, message, run: run === undefined ? undefined : runView(run) });
}

function runView({ exitCode, signal, stdout, stderr, outputCut, wallMs, cpuMs, peakMemoryBytes }: FunctionRun) {
  return present({
    exitCode,
    signal,
    stdout: textOrBytes(stdout),
    stderr: textOrBytes(stderr),
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
