import { type Static, Type } from "typebox";
import { FUNCTION_STATUSES } from "#core/functions.ts";
import { MAX_WAIT_MS } from "./commands.ts";
import { ErrorBody } from "./errors.ts";
import { closed, described, Environment, oneOf, TextOrBytes } from "./values.ts";

/** Long enough for a compiler, or a program that is judged; longer work belongs into a sandbox. */
const MAX_TIME_MS = 600_000;
const MAX_TESTS = 10_000;
const MAX_CALLS = 10_000;
/** A run's output is kept in memory until its caller has it, and JSON may take six bytes for one: a reply is one text of at most 512 MiB. */
const MAX_OUTPUT_BYTES = 32 * 1024 * 1024;

/** Name of a runtime: a directory of the server. */
const RuntimeName = Type.String({ pattern: "^[a-z0-9][a-z0-9+._-]{0,63}$" });

const FileName = Type.String({ pattern: "^[^/\\u0000]+(/[^/\\u0000]+)*$", maxLength: 1024 });

const Limits = closed({
  compileMs: Type.Optional(
    described(Type.Integer({ minimum: 1, maximum: MAX_TIME_MS }), "Processor time of the compiler."),
  ),
  runMs: Type.Optional(
    described(
      Type.Integer({ minimum: 1, maximum: MAX_TIME_MS }),
      "Processor time of a run. By the clock it may take three times as long, and five seconds.",
    ),
  ),
  memoryMiB: Type.Optional(Type.Integer({ minimum: 8, maximum: 1_048_576 })),
  outputBytes: Type.Optional(
    described(Type.Integer({ minimum: 0, maximum: MAX_OUTPUT_BYTES }), "Of stdout and of stderr each."),
  ),
  pids: Type.Optional(Type.Integer({ minimum: 1, maximum: 4096 })),
});

const Checker = Type.Union([
  closed({ type: oneOf(["exact", "tokens"]) }),
  closed({ type: Type.Literal("numbers"), tolerance: Type.Number({ minimum: 0 }) }),
  closed({ type: Type.Literal("program"), runtime: RuntimeName, code: TextOrBytes }),
]);

/** One input of a program that is judged, and how its output is held against what is expected: exactly, unless said otherwise. */
export const FunctionTest = closed({
  stdin: Type.Optional(TextOrBytes),
  expected: Type.Optional(TextOrBytes),
  checker: Type.Optional(Checker),
});
export type FunctionTest = Static<typeof FunctionTest>;

/** One call: `code` in the runtime's language, or a `command` of its environment. */
export const InvokeFunction = closed({
  runtime: RuntimeName,
  code: Type.Optional(TextOrBytes),
  command: Type.Optional(Type.Array(Type.String(), { minItems: 1, maxItems: 1000 })),
  files: Type.Optional(Type.Record(FileName, TextOrBytes, { additionalProperties: false, maxProperties: 1000 })),
  stdin: Type.Optional(TextOrBytes),
  args: Type.Optional(Type.Array(Type.String(), { maxItems: 1000 })),
  env: Type.Optional(Environment),
  limits: Type.Optional(Limits),
  network: Type.Optional(oneOf(["none"])),
  outputs: Type.Optional(described(Type.Array(FileName, { maxItems: 100 }), "Names of files to return.")),
  tests: Type.Optional(Type.Array(FunctionTest, { minItems: 1, maxItems: MAX_TESTS })),
  stopEarly: Type.Optional(described(Type.Boolean(), "Run no test after the first that was not accepted.")),
  reuse: Type.Optional(
    described(
      oneOf(["cells", "never"]),
      "never: in a container that is made for this call. The default is a cell in a shared one.",
    ),
  ),
});
export type InvokeFunction = Static<typeof InvokeFunction>;

const RUN = {
  exitCode: Type.Optional(Type.Integer()),
  signal: Type.Optional(Type.String()),
  stdout: TextOrBytes,
  stderr: TextOrBytes,
  outputCut: Type.Boolean(),
  wallMs: Type.Number(),
  cpuMs: Type.Number(),
  peakMemoryBytes: Type.Integer(),
};

/** A program's life: exactly one of `exitCode` and `signal` is there when it began. */
export const FunctionRunView = closed(RUN);
export type FunctionRunView = Static<typeof FunctionRunView>;

/** What became of one test. */
export const FunctionTestView = closed({
  verdict: oneOf([
    "accepted",
    "wrong-answer",
    "skipped",
    "runtime-error",
    "time-limit",
    "memory-limit",
    "output-limit",
    "system-error",
  ]),
  message: Type.Optional(Type.String()),
  run: Type.Optional(FunctionRunView),
});
export type FunctionTestView = Static<typeof FunctionTestView>;

/** What became of a call. With tests, `status` is that of the first that did not end well, whatever it answered. */
export const FunctionReply = closed({
  status: oneOf(FUNCTION_STATUSES),
  message: Type.Optional(Type.String()),
  compile: Type.Optional(closed({ ...RUN, cached: Type.Boolean() })),
  run: Type.Optional(FunctionRunView),
  files: Type.Optional(Type.Record(Type.String(), TextOrBytes)),
  tests: Type.Optional(Type.Array(FunctionTestView)),
});
export type FunctionReply = Static<typeof FunctionReply>;

/** A call that nobody waits for yet. */
export const StartedCall = closed({ id: Type.String() });
export type StartedCall = Static<typeof StartedCall>;

/** How long to wait for a result before the answer comes without one. */
export const CallQuery = closed({ waitMs: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_WAIT_MS })) });

/** A call by its id; the result is there once it is done. */
export const CallView = closed({
  id: Type.String(),
  state: oneOf(["running", "done"]),
  result: Type.Optional(FunctionReply),
});
export type CallView = Static<typeof CallView>;

/** Many calls at once. */
export const InvokeManyRequest = closed({
  calls: Type.Array(InvokeFunction, { minItems: 1, maxItems: MAX_CALLS }),
  concurrency: Type.Optional(Type.Integer({ minimum: 1, maximum: 256 })),
});
export type InvokeManyRequest = Static<typeof InvokeManyRequest>;

const error = ErrorBody.properties.error;

/** What came of one of them, by its index from 0 on; in the order in which they are done. */
export const InvokeManyEvent = Type.Union([
  closed({ index: Type.Integer(), result: FunctionReply }),
  closed({ index: Type.Integer(), error }),
]);
export type InvokeManyEvent = Static<typeof InvokeManyEvent>;

/** A runtime, and whether its base is made: the first call makes it otherwise, which takes a minute or more. */
export const RuntimeView = closed({
  name: Type.String(),
  base: Type.String(),
  ready: Type.Boolean(),
  compiles: Type.Boolean(),
  limits: closed({
    compileMs: Type.Integer(),
    runMs: Type.Integer(),
    memoryMiB: Type.Integer(),
    outputBytes: Type.Integer(),
    pids: Type.Integer(),
  }),
});
export type RuntimeView = Static<typeof RuntimeView>;

/** Every runtime of the server. */
export const RuntimeList = closed({ runtimes: Type.Array(RuntimeView) });
export type RuntimeList = Static<typeof RuntimeList>;

/** A line of the reply to a preparation: any number of `progress`, then exactly one of the others. */
export const PrepareEvent = Type.Union([
  closed({ progress: Type.String() }),
  closed({ runtime: RuntimeView }),
  ErrorBody,
]);
export type PrepareEvent = Static<typeof PrepareEvent>;
