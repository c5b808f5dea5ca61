import type { Command } from "commander";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { pair, sizeMiB, timeMs, whole } from "./units.ts";

/** The commands about functions. */
export function addFunctionCommands(program: Command, wiring: Wiring): void {
  const { finish } = wiring;
  const functions = program.command("fn").description("short programs that need no sandbox");
  subcommand(functions, "run", "run a program once, with stdin as its input")
    .argument("<file>", "source file; its ending names the runtime unless --runtime does")
    .argument("[args...]", "arguments of the program")
    .option("--runtime <name>", "see dsec fn runtimes")
    .option("--compile-time <time>", "processor time of the compiler", timeMs("--compile-time"))
    .option("--time <time>", "processor time of the program", timeMs("--time"))
    .option("--memory <size>", "memory of the program", sizeMiB("--memory"))
    .option("--pids <number>", "processes of the program", whole("--pids"))
    .option("--env <name=value>", "a variable; may be given again", pair("--env"))
    .option("--no-reuse", "in a container that is made for this call")
    .passThroughOptions()
    .action(async (file: string, args: string[], options, command: Command) => {
      const { run } = await import("./commands/function-run.ts");
      finish(await run(contextOf(wiring, command), file, args, options));
    });
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
