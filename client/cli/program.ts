import { Command, CommanderError } from "commander";
import { CliError } from "./cli-error.ts";
import { addComputerCommands } from "./computer-program.ts";
import { addFunctionCommands } from "./function-program.ts";
import { addImageCommands } from "./image-program.ts";
import type { CliContext } from "./io.ts";
import { addPackingCommands } from "./packing-program.ts";
import { specOptions } from "./spec-options.ts";
import { contextOf, subcommand } from "./subcommand.ts";
import { pair, timeMs, timeOrNone, whole } from "./units.ts";

/** As many as the server takes for one command; the parser's stack has room for little more. */
const MAX_WORDS = 100_000;

/** Commands that concern this machine; whoever wires the program brings them. Each gets its words and returns an exit status. */
export interface HostCommand {
  readonly name: string;
  readonly help: string;
  /** Whether it takes `--json`. */
  readonly json: boolean;
  /** What may follow its name, and with a line each what that means; printed for `--help`. */
  usage(): Promise<string>;
  run(argv: readonly string[]): Promise<number>;
}

/** What the program is built from. */
export interface ProgramParts {
  context(options: { readonly json: boolean }): CliContext;
  readonly hostCommands: readonly HostCommand[];
  readonly version: string;
}

/** Parses the words after the program's name and runs what they ask for; resolves to the exit status. */
export async function runProgram(argv: readonly string[], parts: ProgramParts): Promise<number> {
  if (argv.length > MAX_WORDS) {
    throw new CliError("TooLarge", `${argv.length} words are more than ${MAX_WORDS}`, { hint: "pass them on stdin" });
  }
  let status = 0;
  const finish = (result: number) => {
    status = result;
  };
  const program = root(parts);
  addSandboxCommands(program, parts, finish);
  addFileCommands(program, parts, finish);
  addImageCommands(program, { ...parts, finish });
  addFunctionCommands(program, { ...parts, finish });
  addPackingCommands(program, { ...parts, finish });
  addComputerCommands(program, { ...parts, finish });
  addHostCommands(program, parts, finish);
  try {
    await program.parseAsync([...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Help that was asked for is a success and is printed already.
    if (error.exitCode === 0) return 0;
    // A suggestion stands on a line of its own.
    const told = error.message.replace(/^error: /, "").replaceAll("\n", " ");
    const message = error.code === "commander.help" ? "a command is missing" : told;
    throw new CliError("InvalidArgument", message, { hint: helpFor(program, argv) });
  }
  return status;
}

/** The line that explains the command that was meant, as far as the words name one. */
function helpFor(program: Command, argv: readonly string[]): string {
  let command = program;
  const names = [program.name()];
  for (const word of argv) {
    if (word === "--json") continue;
    const next = command.commands.find((each) => each.name() === word);
    if (next === undefined) break;
    command = next;
    names.push(word);
  }
  return `${names.join(" ")} --help`;
}

type Finish = (status: number) => void;

function root(parts: ProgramParts): Command {
  return new Command("dsec")
    .description("Elastic sandboxes for AI agents.")
    .version(parts.version)
    .option("--json", "results as JSON")
    .enablePositionalOptions()
    .configureOutput({ writeErr: () => undefined })
    .exitOverride();
}

function addSandboxCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  specOptions(subcommand(program, "run", "run a command in a new sandbox and remove it"))
    .argument("<command...>", "program and arguments")
    .option("--shell", "the words are a line for the sandbox's /bin/sh")
    .option("--time-limit <time>", "kill the command after so long", timeMs("--time-limit"))
    .option("--pipes", "wait until background children have let go of its output, too")
    .usage("[options] -- <program> [argument...]")
    .passThroughOptions()
    .action(async (words: string[], options, command: Command) => {
      const { run } = await import("./commands/run.ts");
      finish(await run(contextOf(parts, command), words, options));
    });
  specOptions(subcommand(program, "create", "make a sandbox and print its id"))
    .option("--count <number>", "make so many, and print each id as it is ready", whole("--count"))
    .option("--concurrency <number>", "how many at a time, with --count", whole("--concurrency"))
    .action(async (options, command: Command) => {
      const context = contextOf(parts, command);
      if (options.count === undefined) needs(options, "concurrency", "count");
      if (options.count === undefined) finish(await (await import("./commands/create.ts")).create(context, options));
      else finish(await (await import("./commands/create-many.ts")).createMany(context, options));
    });
  addExec(program, parts, finish);
  addCommandCommands(program, parts, finish);
  addLookingCommands(program, parts, finish);
}

function addExec(program: Command, parts: ProgramParts, finish: Finish): void {
  subcommand(program, "exec", "run a command in a sandbox")
    .argument("<id>", "sandbox; none with --label")
    .argument("[command...]", "program and arguments")
    .option("--label <name=value>", "in every sandbox with the label (may be given again)", pair("--label"))
    .option("--concurrency <number>", "how many at a time, with --label", whole("--concurrency"))
    .option("--shell", "the words are a line for the sandbox's /bin/sh")
    .option("-d, --detach", "print the command's id and leave it running")
    .option("-t, --tty", "run it on a terminal of your terminal's size")
    .option("-i, --interactive", "type into it, with --tty; Ctrl-P Ctrl-Q leaves it running")
    .option("-e, --env <name=value>", "environment (may be given again)", pair("--env"))
    .option("-u, --user <user[:group]>", "who it runs as")
    .option("-w, --workdir <path>", "where it starts")
    .option("--time-limit <time>", "kill the command after so long", timeMs("--time-limit"))
    .option("--pipes", "wait until background children have let go of its output, too")
    .usage("[options] <id> -- <program> [argument...]")
    .passThroughOptions()
    .action(async (id: string, words: string[], options, command: Command) => {
      const context = contextOf(parts, command);
      if (options.label !== undefined) {
        if (options.tty === true) throw new CliError("InvalidArgument", "--tty is for one sandbox, not for a label");
        finish(await (await import("./commands/exec-many.ts")).execMany(context, [id, ...words], options));
        return;
      }
      needs(options, "concurrency", "label");
      if (options.tty === undefined) needs(options, "interactive", "tty");
      const { exec } = await import("./commands/exec.ts");
      const [first = ""] = words;
      if (first.startsWith("-") && first !== "--") {
        throw new CliError("InvalidArgument", `${first} stands after the sandbox's id`, {
          hint: "dsec exec [options] ID -- PROGRAM",
        });
      }
      // Options end at the id, so what separates them from the command is still there.
      const line = first === "--" ? words.slice(1) : words;
      if (line.length === 0)
        throw new CliError("InvalidArgument", "a command is missing", { hint: "dsec exec --help" });
      finish(await exec(context, id, line, options));
    });
}

/** Refuses an option that means nothing without another one, which is absent. */
function needs(options: Readonly<Record<string, unknown>>, name: string, other: string): void {
  if (options[name] === undefined) return;
  throw new CliError("InvalidArgument", `--${name} means nothing without --${other}`, {
    hint: `add --${other}, or leave out --${name}`,
  });
}

/** About commands that were started before. */
function addCommandCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  subcommand(program, "commands", "list the commands of a sandbox")
    .argument("<id>", "sandbox")
    .action(async (id: string, _options, command: Command) => {
      const { commands } = await import("./commands/commands.ts");
      finish(await commands(contextOf(parts, command), id));
    });
  subcommand(program, "signal", "signal a command's process group")
    .argument("<id>", "sandbox")
    .argument("<command>", "command id")
    .argument("[signal]", "name or number", "SIGTERM")
    .action(async (id: string, commandId: string, name: string, _options, command: Command) => {
      const { signal } = await import("./commands/signal.ts");
      finish(await signal(contextOf(parts, command), id, commandId, name));
    });
  subcommand(program, "attach", "join a command that runs, with what it has written so far")
    .argument("<id>", "sandbox")
    .argument("[command]", "command id; the last one unless given")
    .option("--no-input", "only look: whoever types into it goes on")
    .action(async (id: string, commandId: string | undefined, options, command: Command) => {
      const { attach } = await import("./commands/attach.ts");
      finish(await attach(contextOf(parts, command), id, commandId, options));
    });
  addSessionCommands(program, parts, finish);
  addPortCommands(program, parts, finish);
  subcommand(program, "wait", "wait for the end of a command; its exit status becomes ours")
    .argument("<id>", "sandbox")
    .argument("<command>", "command id")
    .action(async (id: string, commandId: string, _options, command: Command) => {
      const { wait } = await import("./commands/wait.ts");
      finish(await wait(contextOf(parts, command), id, commandId));
    });
}

function addPortCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  subcommand(program, "forward", "make ports of a sandbox ports of this machine")
    .argument("<id>", "sandbox")
    .argument("<ports...>", "LOCAL:PORT; :PORT takes a free local one")
    .action(async (id: string, words: string[], _options, command: Command) => {
      const { forward } = await import("./commands/forward.ts");
      finish(await forward(contextOf(parts, command), id, words));
    });
  subcommand(program, "ports", "list the ports that servers in a sandbox listen on")
    .argument("<id>", "sandbox")
    .option("--wait <port>", "until a server listens on the port")
    .option("--timeout <time>", "wait for so long at most", timeMs("--timeout"))
    .option("--link <port>", "print a link that opens the port in a browser, once")
    .action(async (id: string, options, command: Command) => {
      const { ports } = await import("./commands/ports.ts");
      finish(await ports(contextOf(parts, command), id, options));
    });
}

function addSessionCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  const session = program.command("session").description("persistent shells in a sandbox");
  subcommand(session, "run", "run a line in a session, which is opened when it is not there")
    .argument("<id>", "sandbox")
    .argument("<name>", "session")
    .argument("<line...>", "a line for its shell")
    .option("--time-limit <time>", "kill what the line started after so long", timeMs("--time-limit"))
    .usage("[options] <id> <name> -- <line>")
    .passThroughOptions()
    .action(async (id: string, name: string, words: string[], options, command: Command) => {
      const { runLine } = await import("./commands/session.ts");
      const line = words[0] === "--" ? words.slice(1) : words;
      finish(await runLine(contextOf(parts, command), id, name, line, options));
    });
  subcommand(session, "ls", "list the sessions of a sandbox")
    .argument("<id>", "sandbox")
    .action(async (id: string, _options, command: Command) => {
      const { listSessions } = await import("./commands/session.ts");
      finish(await listSessions(contextOf(parts, command), id));
    });
  subcommand(session, "rm", "end sessions, with everything that they started")
    .argument("<id>", "sandbox")
    .argument("<name...>", "sessions")
    .action(async (id: string, names: string[], _options, command: Command) => {
      const { removeSessions } = await import("./commands/session.ts");
      finish(await removeSessions(contextOf(parts, command), id, names));
    });
}

function addLookingCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  subcommand(program, "ls", "list sandboxes")
    .option("--label <name=value>", "only those with the label", pair("--label"))
    .action(async (options, command: Command) => {
      const { ls } = await import("./commands/ls.ts");
      finish(await ls(contextOf(parts, command), options));
    });
  subcommand(program, "info", "show a sandbox and its commands")
    .argument("<id>", "sandbox")
    .action(async (id: string, _options, command: Command) => {
      const { info } = await import("./commands/info.ts");
      finish(await info(contextOf(parts, command), id));
    });
  subcommand(program, "extend", "move the time limits of a sandbox")
    .argument("<id>", "sandbox")
    .option("--idle-timeout <time|none>", "removed when unused for so long", timeOrNone("--idle-timeout"))
    .option("--max-lifetime <time|none>", "removed so long after its creation", timeOrNone("--max-lifetime"))
    .action(async (id: string, options, command: Command) => {
      const { extend } = await import("./commands/extend.ts");
      finish(await extend(contextOf(parts, command), id, options));
    });
  subcommand(program, "rm", "remove sandboxes")
    .argument("[id...]", "sandboxes")
    .option("--all", "every sandbox of the project")
    .option("-f, --force", "no complaint about ids that nobody knows")
    .option("--label <name=value>", "every sandbox with the label (may be given again)", pair("--label"))
    .action(async (ids: string[], options, command: Command) => {
      const { rm } = await import("./commands/rm.ts");
      finish(await rm(contextOf(parts, command), ids, options));
    });
  subcommand(program, "logs", "show what a command wrote")
    .argument("<id>", "sandbox")
    .argument("[command]", "command id; the last one unless given")
    .option("-f, --follow", "go on until it has ended")
    .option("--since-offset <bytes>", "leave out so many bytes of each stream", whole("--since-offset"))
    .action(async (id: string, commandId: string | undefined, options, command: Command) => {
      const { logs } = await import("./commands/logs.ts");
      finish(await logs(contextOf(parts, command), id, commandId, options));
    });
  subcommand(program, "top", "show what sandboxes use")
    .argument("[id...]", "sandboxes; every one of the project unless given")
    .option("--label <name=value>", "only those with the label", pair("--label"))
    .option("--interval <time>", "look so often; 2s unless given", timeMs("--interval"))
    .option("--once", "look once")
    .action(async (ids: string[], options, command: Command) => {
      const { top } = await import("./commands/top.ts");
      finish(await top(contextOf(parts, command), ids, options));
    });
  subcommand(program, "status", "show nodes and what exists on them").action(async (_options, command: Command) => {
    const { status } = await import("./commands/status.ts");
    finish(await status(contextOf(parts, command)));
  });
}

/** Files go into a sandbox and come out of it. */
function addFileCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  subcommand(program, "cp", "copy files and trees into a sandbox, out of it or between two")
    .argument("<from>", "PATH, ID:/path or -")
    .argument("<to>", "PATH, ID:/path or -")
    .option("-a, --archive", "owners by number and setuid bits, too")
    .option("--all-links", "take links that lead out of a tree, too")
    .option("--tar", "stdin is a tar archive to unpack")
    .option("-u, --user <user[:group]>", "whose rights in the sandbox")
    .action(async (from: string, to: string, options, command: Command) => {
      const { cp } = await import("./commands/cp.ts");
      finish(await cp(contextOf(parts, command), from, to, options));
    });
  subcommand(program, "watch", "show what happens to files of a sandbox")
    .argument("<id>", "sandbox")
    .argument("<path>", "directory or file")
    .option("-r, --recursive", "directories below, too")
    .option("-u, --user <user[:group]>", "whose rights in the sandbox")
    .action(async (id: string, path: string, options, command: Command) => {
      const { watch } = await import("./commands/watch.ts");
      finish(await watch(contextOf(parts, command), id, path, options));
    });
}

function addHostCommands(program: Command, parts: ProgramParts, finish: Finish): void {
  for (const host of parts.hostCommands) {
    program
      .command(host.name)
      .description(host.help)
      .argument("[words...]")
      .allowUnknownOption()
      .helpOption(false)
      .passThroughOptions()
      .action(async (words: string[], _options, command: Command) => {
        if (words.includes("--help") || words.includes("-h")) {
          parts.context({ json: false }).io.stdout.write(`Usage: dsec ${host.name} ${await host.usage()}`);
          return;
        }
        const json = command.optsWithGlobals().json === true;
        if (json && !host.json) {
          throw new CliError("InvalidArgument", `${host.name} has no results as JSON`, { hint: "leave --json out" });
        }
        finish(await host.run(json ? ["--json", ...words] : words));
      });
  }
}
