import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { extname } from "node:path";
import type { FunctionReply, FunctionRunView, InvokeFunction } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { type CliContext, passedOn, print, writeTo } from "../io.ts";

/** Of one call; it may have to be compiled first. */
export const CALL_MS = 600_000;

/** Options of `fn run`. */
export interface FunctionRunOptions {
  readonly runtime?: string;
  readonly compileTime?: number;
  readonly time?: number;
  readonly memory?: number;
  readonly pids?: number;
  readonly env?: Record<string, string>;
  readonly reuse: boolean;
}

/** Runtimes by the endings of their source files. */
const ENDINGS: Readonly<Record<string, string>> = {
  ".py": "python",
  ".js": "node",
  ".mjs": "node",
  ".sh": "bash",
  ".c": "c",
  ".cc": "c++",
  ".cpp": "c++",
  ".cxx": "c++",
  ".go": "go",
  ".java": "java",
  ".rs": "rust",
};

/** Runs a source file once. Its output and exit status become this program's; what else there is to say goes to stderr. */
export async function run(
  context: CliContext,
  file: string,
  args: readonly string[],
  options: FunctionRunOptions,
): Promise<number> {
  const { client, call } = await ready(context, programCall(file, args, options));
  return ended(context, await client.functions.invoke(call, { timeoutMs: CALL_MS }));
}

/** Takes the same on, and prints its id at once. */
export async function start(
  context: CliContext,
  file: string,
  args: readonly string[],
  options: FunctionRunOptions,
): Promise<number> {
  const { client, call } = await ready(context, programCall(file, args, options));
  const id = await client.functions.start(call);
  print(context, { id }, () => `${id}\n`);
  return 0;
}

/** Waits for what `start` began, and ends as `run` would have. */
export async function wait(context: CliContext, id: string): Promise<number> {
  const client = await context.connect({ start: false });
  return ended(context, await client.functions.result(id));
}

/** Gives it up, or its result. */
export async function drop(context: CliContext, id: string): Promise<number> {
  const client = await context.connect({ start: false });
  await client.functions.drop(id);
  return 0;
}

/** The call with its input, and a node to make it. */
async function ready(context: CliContext, program: InvokeFunction) {
  const call = { ...program, ...(await stdinOf(context)) };
  return { client: await context.connect({ start: true }), call };
}

/** What a source file and the options about it ask for; its input is still to come. Throws `InvalidArgument` for a file that cannot be read. */
export function programCall(file: string, args: readonly string[], options: FunctionRunOptions): InvokeFunction {
  const runtime = options.runtime ?? ENDINGS[extname(file)];
  if (runtime === undefined) {
    throw new CliError("InvalidArgument", `the ending of ${file} names no runtime`, {
      hint: "give one with --runtime",
    });
  }
  return {
    runtime,
    code: { base64: fileOf(file).toString("base64") },
    args: [...args],
    ...(options.env === undefined ? {} : { env: options.env }),
    limits: limitsOf(options),
    ...(options.reuse ? {} : { reuse: "never" as const }),
  };
}

/** The content of a file that was named. Throws `InvalidArgument`. */
export function fileOf(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    if (!hasCode(error, "ENOENT", "EACCES", "EISDIR", "ENOTDIR")) throw error;
    throw new CliError("InvalidArgument", `${file} cannot be read`, { cause: error });
  }
}

async function ended(context: CliContext, reply: FunctionReply): Promise<number> {
  if (context.json) {
    context.io.stdout.write(`${JSON.stringify(reply)}\n`);
    return exitStatusOf(reply);
  }
  await show(context, reply.run ?? reply.compile);
  const note = noteOn(reply);
  if (note !== undefined) context.io.stderr.write(`dsec: ${note}\n`);
  return exitStatusOf(reply);
}

async function show({ io }: CliContext, run: FunctionRunView | undefined): Promise<void> {
  if (run === undefined) return;
  await writeTo(io.stdout, bytesOf(run.stdout));
  await writeTo(io.stderr, bytesOf(run.stderr));
  await passedOn(io.stdout);
}

function bytesOf(text: FunctionRunView["stdout"]): Buffer {
  return typeof text === "string" ? Buffer.from(text) : Buffer.from(text.base64, "base64");
}

/** What its outputs and the exit status alone do not say. */
function noteOn({ status, message }: FunctionReply): string | undefined {
  if (status === "ok") return message;
  if (status === "runtime-error") return message;
  return message === undefined ? status : `${status}: ${message}`;
}

function exitStatusOf({ status, run }: FunctionReply): number {
  if (status === "system-error") return PLATFORM_FAILURE;
  if (run?.exitCode !== undefined) return run.exitCode;
  const numbers: Readonly<Record<string, number>> = constants.signals;
  if (run?.signal !== undefined) return 128 + (numbers[run.signal] ?? 0);
  return 1;
}

function limitsOf({ compileTime, time, memory, pids }: FunctionRunOptions): NonNullable<InvokeFunction["limits"]> {
  return {
    ...(compileTime === undefined ? {} : { compileMs: compileTime }),
    ...(time === undefined ? {} : { runMs: time }),
    ...(memory === undefined ? {} : { memoryMiB: memory }),
    ...(pids === undefined ? {} : { pids }),
  };
}

async function stdinOf(context: CliContext): Promise<Pick<InvokeFunction, "stdin">> {
  return { stdin: { base64: (await inputOf(context)).toString("base64") } };
}

/** All of stdin; nothing from a terminal, where nobody would know that it is waited for. */
export async function inputOf({ io }: CliContext): Promise<Buffer> {
  if (io.terminal !== undefined) return Buffer.alloc(0);
  const pieces: Buffer[] = [];
  for await (const piece of io.stdin) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces);
}
