import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { FunctionReply, InvokeFunction } from "#sdk";
import { CliError, hasCode } from "../cli-error.ts";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { type CliContext, print, table, writeTo } from "../io.ts";
import { CALL_MS, type FunctionRunOptions, fileOf, inputOf, programCall } from "./function-run.ts";

type Test = NonNullable<InvokeFunction["tests"]>[number];

/** Options of `fn judge`. */
export interface FunctionJudgeOptions extends FunctionRunOptions {
  readonly tests: string;
  readonly checker?: string;
  readonly stopEarly?: boolean;
}

/** Runs a source file over tests and prints the verdict on each. 0 when all are accepted, 1 when one is not. */
export async function judge(context: CliContext, file: string, options: FunctionJudgeOptions): Promise<number> {
  const named = testsOf(options.tests);
  const checker = options.checker === undefined ? undefined : checkerOf(options.checker);
  const call: InvokeFunction = {
    ...programCall(file, [], options),
    tests: named.map(({ test }) => (checker === undefined ? test : { checker, ...test })),
    stopEarly: options.stopEarly ?? false,
  };
  const client = await context.connect({ start: true });
  const reply = await client.functions.invoke(call, { timeoutMs: CALL_MS });
  print(context, reply, () => verdicts(named, reply));
  if (reply.status === "system-error") return PLATFORM_FAILURE;
  return reply.tests?.every(({ verdict }) => verdict === "accepted") ? 0 : 1;
}

/** Carries out calls, one in each line of a file or of stdin, and prints a line for each as it is done. 0 when all ended well, 1 when one did not. */
export async function batch(
  context: CliContext,
  file: string,
  options: { readonly concurrency?: number },
): Promise<number> {
  const text = file === "-" ? await inputOf(context) : fileOf(file);
  const calls = text
    .toString()
    .split("\n")
    .flatMap((line, index) =>
      line.trim() === "" ? [] : [parsed(line, `line ${index + 1} of ${file}`) as InvokeFunction],
    );
  if (calls.length === 0)
    throw new CliError("InvalidArgument", `${file} has no calls`, { hint: "one a line, as JSON" });
  const client = await context.connect({ start: true });
  let isGood = true;
  for await (const each of client.functions.invokeMany(calls, options)) {
    isGood &&= "result" in each && each.result.status === "ok";
    const { index } = each;
    const line =
      "result" in each
        ? each
        : { index, error: { kind: each.error.kind, message: each.error.message, hint: each.error.hint } };
    if (!(await writeTo(context.io.stdout, Buffer.from(`${JSON.stringify(line)}\n`)))) break;
  }
  return isGood ? 0 : 1;
}

interface NamedTest {
  readonly name: string;
  readonly test: Test;
}

/** A JSON list of tests, or a directory in which `NAME.in` is an input and `NAME.out` or `NAME.ans` what is expected. */
function testsOf(path: string): readonly NamedTest[] {
  const names = inputsIn(path);
  if (names === undefined) {
    const list = parsed(fileOf(path).toString(), path);
    if (!Array.isArray(list)) throw new CliError("InvalidArgument", `${path} is no list of tests`);
    return list.map((test: Test, index) => ({ name: String(index + 1), test }));
  }
  if (names.length === 0) {
    throw new CliError("InvalidArgument", `${path} has no tests`, {
      hint: "name inputs NAME.in, answers NAME.out or NAME.ans",
    });
  }
  return names.map((name) => ({ name, test: testIn(path, name) }));
}

/** Names of tests in a directory, in the order of people: 2 before 10. Undefined when it is a file. */
function inputsIn(path: string): readonly string[] | undefined {
  try {
    const names = readdirSync(path).filter((name) => name.endsWith(".in"));
    return names.map((name) => name.slice(0, -3)).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  } catch (error) {
    if (hasCode(error, "ENOTDIR", "ENOENT")) return undefined;
    throw error;
  }
}

function testIn(folder: string, name: string): Test {
  const answers = readdirSync(folder).filter((each) => each === `${name}.out` || each === `${name}.ans`);
  const [answer] = answers;
  if (answer === undefined) {
    throw new CliError("InvalidArgument", `${join(folder, name)}.in has no answer`, { hint: `add ${name}.out` });
  }
  return { stdin: bytesIn(join(folder, `${name}.in`)), expected: bytesIn(join(folder, answer)) };
}

function bytesIn(file: string): { readonly base64: string } {
  return { base64: fileOf(file).toString("base64") };
}

function checkerOf(text: string): NonNullable<Test["checker"]> {
  const [type, tolerance] = text.split(":");
  if ((type === "exact" || type === "tokens") && tolerance === undefined) return { type };
  if (type === "numbers" && Number(tolerance) >= 0) return { type, tolerance: Number(tolerance) };
  throw new CliError("InvalidArgument", `--checker: ${JSON.stringify(text)} is no checker`, {
    hint: "exact, tokens, or numbers:1e-6; programs go into a JSON list of tests",
  });
}

function verdicts(named: readonly NamedTest[], { status, message, compile, tests = [] }: FunctionReply): string {
  if (tests.length === 0) {
    const said = typeof compile?.stderr === "string" ? compile.stderr : "";
    return `${status}${message === undefined ? "" : `: ${message}`}\n${said}`;
  }
  const rows = tests.map(({ verdict, run, message: why }, index) => [
    named[index]?.name ?? "",
    verdict,
    run === undefined ? "" : `${Math.round(run.cpuMs)} ms`,
    run === undefined ? "" : `${Math.ceil(run.peakMemoryBytes / 2 ** 20)} MiB`,
    why ?? "",
  ]);
  const accepted = tests.filter(({ verdict }) => verdict === "accepted").length;
  return `${table(["TEST", "VERDICT", "TIME", "MEMORY", ""], rows)}${accepted} of ${tests.length} accepted\n`;
}

function parsed(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CliError("InvalidArgument", `${where} is not JSON`, { cause: error });
  }
}
