import type { Command } from "commander";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { pair, several, whole } from "./units.ts";

/** The commands that make something of what a sandbox is at a moment. */
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
    .option("--label <name=value>", "label of the snapshot (may be given again)", pair("--label"))
    .option("--as-it-runs", "do not hold its processes still for the moment")
    .action(async (id: string, name: string, options, command: Command) => {
      const { pack } = await import("./commands/pack.ts");
      wiring.finish(await pack(contextOf(wiring, command), id, name, options));
    });
  subcommand(program, "fork", "make sandboxes that begin with what another has written, and print their ids")
    .argument("<id>", "sandbox")
    .option("--count <number>", "how many; 1 unless given", whole("--count"))
    .option("--label <name=value>", "label beside those of the sandbox (may be given again)", pair("--label"))
    .option("--nodes <which>", "any: its node, then others (default); same: its node alone; other: none on its node")
    .option("--paused", "save them as it is now, memory and all, and let none run before it is needed: snapshots")
    .option("--files-only", "begin with its files, without what runs")
    .action(async (id: string, options, command: Command) => {
      const { fork } = await import("./commands/fork.ts");
      wiring.finish(await fork(contextOf(wiring, command), id, options));
    });
  for (const [verb, what] of [
    ["pause", "save sandboxes as they are, processes and all, until they are needed again"],
    ["resume", "let paused sandboxes go on where they were"],
  ] as const) {
    subcommand(program, verb, what)
      .argument("<ids...>", "sandboxes")
      .action(async (ids: string[], _options, command: Command) => {
        const { pauseOrResume } = await import("./commands/pause.ts");
        wiring.finish(await pauseOrResume(contextOf(wiring, command), verb, ids));
      });
  }
  subcommand(program, "tree", "list sandboxes below those that they were forked from")
    .argument("[id]", "the tree that this sandbox is in; every one unless given")
    .action(async (id: string | undefined, _options, command: Command) => {
      const { tree } = await import("./commands/tree.ts");
      wiring.finish(await tree(contextOf(wiring, command), id));
    });
}
