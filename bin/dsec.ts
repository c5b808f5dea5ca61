import { readFileSync } from "node:fs";
import { errorText, runCli } from "#cli/main.ts";
import type { HostCommand } from "#cli/program.ts";
import { wordsOf } from "#cli/words.ts";
import { loadPlaces, type Places } from "./config.ts";
import { findEndpoint } from "./endpoint.ts";
import { processIo } from "./process-io.ts";
import { VERSION } from "./version.ts";

/** The words of `dsec`: everything but what a command needs is loaded when it is asked for. */
const HOST_COMMANDS: readonly (HostCommand & { run(argv: readonly string[]): Promise<number> })[] = [
  {
    name: "up",
    help: "run a node on this machine until Ctrl-C (--help lists its settings)",
    json: true,
    usage: async () => `[SETTINGS]\n\n${(await import("./config.ts")).nodeSettingsHelp()}`,
    run: async (argv) => (await import("./up.ts")).up(argv, process.env),
  },
  {
    name: "down",
    help: "stop this machine's node and remove its sandboxes (--keep leaves them)",
    json: true,
    usage: async () =>
      "[--keep] [--json]\n\nStops this machine's node. Its sandboxes are removed, or left to the next node.\n",
    run: async (argv) => (await import("./down.ts")).down(argv, places(), { say, stdout: process.stdout }),
  },
  {
    name: "doctor",
    help: "say what this machine can and cannot do, and why",
    json: true,
    usage: async () => "[--json]\n\nSays what works, what is missing, why that matters and how to get it.\n",
    run: async (argv) => (await import("./doctor.ts")).doctor(argv, places(), process.stdout),
  },
  {
    name: "agent-package",
    help: "make a Debian package of the agent, for systems of full VMs",
    json: false,
    usage: async () =>
      "FILE\n\nMakes a package that a Debian or Ubuntu on amd64 installs with apt-get install ./FILE.\n",
    run: async (argv) => (await import("./agent-package.ts")).agentPackage(argv, { say }),
  },
  {
    name: "bench",
    help: "measure promised figures beside a floor and peers",
    json: false,
    usage: async () => "NAME\n\nMeasures one group of figures; without a name it says which there are.\n",
    run: async (argv) => (await import("./delegate.ts")).delegate("../bench/main.ts", argv),
  },
  {
    name: "test",
    help: "run the tests, all of them or those whose path has one of the words",
    json: false,
    usage: async () =>
      "[--in-vm [debian-12|debian-13]] [WORD…]\n\nRuns the tests whose path has one of the words, without words all but the slow ones; with --in-vm in a virtual machine with a\nDebian of its own, without words those about the host's kernel.\n",
    run: async (argv) =>
      argv.includes("--in-vm")
        ? (await import("./test-in-vm.ts")).runTestsInVm(argv)
        : (await import("./test.ts")).runTests(argv),
  },
];

function places(): Places {
  return loadPlaces({ env: process.env });
}

function say(line: string): void {
  process.stderr.write(`dsec: ${line}\n`);
}

async function startNode(): Promise<{ readonly url: string }> {
  const { startInBackground } = await import("./background.ts");
  return startInBackground(places(), { words: [], say });
}

async function main(): Promise<number> {
  return await runCli({
    argv: wordsOf(process.argv.slice(2), () => readFileSync("/proc/self/cmdline")),
    io: processIo(),
    version: VERSION,
    hostCommands: HOST_COMMANDS,
    endpoint: ({ start }) => findEndpoint(process.env, places(), start ? startNode : undefined),
  });
}

try {
  // What still waits for stdin must not hold the process: its work is done.
  process.exit(await main());
} catch (error) {
  process.stderr.write(errorText(error));
  process.exit(125);
}
