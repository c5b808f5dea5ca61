import type { Command } from "commander";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { several } from "./units.ts";

/** The commands that make something new of what a sandbox has written. */
export function addPackingCommands(program: Command, wiring: Wiring): void {
  subcommand(program, "pack", "make a snapshot of a sandbox, for others to begin with")
    .argument("<id>", "sandbox")
    .argument("<name>", "name[:tag]")
    .option(
      "--exclude <pattern>",
      "leave out what matches, such as node_modules or /tmp/** (may be given again)",
      several,
    )
    .option("--keep <rule>", "do not scrub: credentials or history (may be given again)", several)
    .option("--as-it-runs", "do not hold its processes still for the moment")
    .action(async (id: string, name: string, options, command: Command) => {
      const { pack } = await import("./commands/pack.ts");
      wiring.finish(await pack(contextOf(wiring, command), id, name, options));
    });
}
