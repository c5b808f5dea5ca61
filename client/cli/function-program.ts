import type { Command } from "commander";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { pair, sizeMiB, timeMs, whole } from "./units.ts";

/** The commands about functions. */
export function addFunctionCommands(program: Command, wiring: Wiring): void {
  const functions = program.command("fn").description("short programs that need no sandbox");
  addPrograms(functions, wiring);
  addCalls(functions, wiring);
  addRuntimes(functions, wiring);
}

/** Options about a program and what it may use. */
function withLimits(command: Command): Command {
  return command
    .argument("<file>", "source file; its ending names the runtime unless --runtime does")
    .option("--runtime <name>", "see dsec fn runtimes")
    .option("--compile-time <time>", "processor time of the compiler", timeMs("--compile-time"))
    .option("--time <time>", "processor time of the program", timeMs("--time"))
    .option("--memory <size>", "memory of the program", sizeMiB("--memory"))
    .option("--pids <number>", "processes of the program", whole("--pids"))
    .option("--env <name=value>", "a variable; may be given again", pair("--env"))
    .option("--no-reuse", "in a container that is made for this call");
}

function addPrograms(functions: Command, wiring: Wiring): void {
  const { finish } = wiring;
  for (const [name, description] of [
    ["run", "run a program once, with stdin as its input"],
    ["start", "begin the same, and print its id at once"],
  ] as const) {
    withLimits(subcommand(functions, name, description))
      .argument("[args...]", "arguments of the program")
      .passThroughOptions()
      .action(async (file: string, args: string[], options, command: Command) => {
        const runs = await import("./commands/function-run.ts");
        finish(await runs[name](contextOf(wiring, command), file, args, options));
      });
  }
  withLimits(subcommand(functions, "judge", "run a program over tests, compiled once, and print the verdicts"))
    .requiredOption("--tests <path>", "a JSON list of tests, or a directory of NAME.in and NAME.out files")
    .option("--checker <checker>", "exact, tokens or numbers:TOLERANCE, for tests that name none")
    .option("--stop-early", "run no test after the first that was not accepted")
    .action(async (file: string, options, command: Command) => {
      const { judge } = await import("./commands/function-batch.ts");
      finish(await judge(contextOf(wiring, command), file, options));
    });
}

function addCalls(functions: Command, wiring: Wiring): void {
  const { finish } = wiring;
  subcommand(functions, "batch", "carry out calls, a line of JSON for each, and print what came of each as it is done")
    .argument("<file>", "- for stdin")
    .option("--concurrency <number>", "calls at once (16)", whole("--concurrency"))
    .action(async (file: string, options, command: Command) => {
      const { batch } = await import("./commands/function-batch.ts");
      finish(await batch(contextOf(wiring, command), file, options));
    });
  for (const [name, description] of [
    ["wait", "wait for what was started, and end as it does"],
    ["drop", "give up what was started, or its result"],
  ] as const) {
    subcommand(functions, name, description)
      .argument("<call>", "id that fn start has printed")
      .action(async (id: string, _options, command: Command) => {
        const runs = await import("./commands/function-run.ts");
        finish(await runs[name](contextOf(wiring, command), id));
      });
  }
}

function addRuntimes(functions: Command, wiring: Wiring): void {
  const { finish } = wiring;
  subcommand(functions, "runtimes", "list what programs can be written in").action(
    async (_options, command: Command) => {
      const { list } = await import("./commands/function-runtimes.ts");
      finish(await list(contextOf(wiring, command)));
    },
  );
  subcommand(functions, "prepare", "make a runtime's base ahead of its first call")
    .argument("<runtime>", "see dsec fn runtimes")
    .action(async (runtime: string, _options, command: Command) => {
      const { prepare } = await import("./commands/function-runtimes.ts");
      finish(await prepare(contextOf(wiring, command), runtime));
    });
}
