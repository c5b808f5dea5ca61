import type { Command } from "commander";
import type { CliContext } from "./io.ts";

/** What a command of the program is wired with. */
export interface Wiring {
  context(options: { readonly json: boolean }): CliContext;
  /** Takes the exit status. */
  readonly finish: (status: number) => void;
}

/** The context for a command: `--json` counts before and after the command's name. */
export function contextOf(parts: Pick<Wiring, "context">, command: Command): CliContext {
  return parts.context({ json: command.optsWithGlobals().json === true });
}

/** A command below `parent` with the options that every command has. */
export function subcommand(parent: Command, usage: string, help: string): Command {
  return parent.command(usage).description(help).option("--json", "results as JSON");
}
