import type { Command } from "commander";
import { CliError } from "./cli-error.ts";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { share, timeMs, whole } from "./units.ts";

const MOST_RATE = 30;

/** The commands about the screen, the keyboard, the mouse and the power of full virtual machines. */
export function addComputerCommands(program: Command, wiring: Wiring): void {
  const { finish } = wiring;
  subcommand(program, "screen", "take a picture of a full VM's screen")
    .argument("<id>", "sandbox")
    .requiredOption("-o, --output <file>", "a PNG; - is stdout")
    .option("--settled <time>", "once it has been the same for so long", timeMs("--settled"))
    .option(
      "--tolerance <share>",
      "with --settled: share of its points that may change all the same; 0.002 unless given",
      share("--tolerance"),
    )
    .option("--wait <time>", "with --settled: as it is then, if it does not settle", timeMs("--wait"))
    .action(async (id: string, options, command: Command) => {
      const { screen } = await import("./commands/screen.ts");
      finish(await screen(contextOf(wiring, command), id, options));
    });
  subcommand(program, "record", "record a full VM's screen to a video, with the ffmpeg of this machine")
    .argument("<id>", "sandbox")
    .requiredOption("-o, --output <file>", "its ending says what kind: .mp4, .webm, …")
    .option("--for <time>", "how long; until Ctrl-C unless given", timeMs("--for"))
    .option("--rate <number>", "pictures a second, 1 to 30; 5 unless given", rate)
    .action(async (id: string, options, command: Command) => {
      const { record } = await import("./commands/record.ts");
      finish(await record(contextOf(wiring, command), id, options));
    });
  subcommand(program, "type", "type a text into a full VM")
    .argument("<id>", "sandbox")
    .argument("<text>", "characters of a US keyboard; a line feed is the enter key")
    .option("--enter", "press enter behind it")
    .action(async (id: string, text: string, options, command: Command) => {
      const { type } = await import("./commands/computer.ts");
      finish(await type(contextOf(wiring, command), id, options.enter === true ? `${text}\n` : text));
    });
  subcommand(program, "key", "press keys of a full VM, one chord after the other")
    .argument("<id>", "sandbox")
    .argument("<chord...>", "keys joined by +, as in ctrl+alt+delete")
    .action(async (id: string, chords: string[], _options, command: Command) => {
      const { key } = await import("./commands/computer.ts");
      finish(await key(contextOf(wiring, command), id, chords));
    });
  subcommand(program, "click", "click on a place of a full VM's screen")
    .argument("<id>", "sandbox")
    .argument("<x>", "points from the left")
    .argument("<y>", "points from the top")
    .option("--button <name>", "left, middle or right; left unless given")
    .option("--double", "twice")
    .option("--to <x,y>", "drag to that place")
    .option("--scroll <notches>", "turn the wheel there instead, down or up when negative")
    .action(async (id: string, x: string, y: string, options, command: Command) => {
      const { click } = await import("./commands/computer.ts");
      finish(await click(contextOf(wiring, command), id, [x, y], options));
    });
  addPowerCommands(program, wiring);
}

/** About what is beside the screen, and about viewers of people. */
function addPowerCommands(program: Command, wiring: Wiring): void {
  const { finish } = wiring;
  subcommand(program, "power", "press the power button of a full VM, or switch it")
    .argument("<id>", "sandbox")
    .argument("[action]", "press, on, off or reset; tells how it is unless given")
    .action(async (id: string, action: string | undefined, _options, command: Command) => {
      const { power } = await import("./commands/computer.ts");
      finish(await power(contextOf(wiring, command), id, action));
    });
  subcommand(program, "console", "join the first serial port of a full VM")
    .argument("<id>", "sandbox")
    .action(async (id: string, _options, command: Command) => {
      const { console } = await import("./commands/console.ts");
      finish(await console(contextOf(wiring, command), id));
    });
  subcommand(program, "vnc", "lead VNC viewers of this machine to the display of a full VM")
    .argument("<id>", "sandbox")
    .argument("[port]", "port of this machine; a free one unless given")
    .action(async (id: string, port: string | undefined, _options, command: Command) => {
      const { vnc } = await import("./commands/vnc.ts");
      finish(await vnc(contextOf(wiring, command), id, port));
    });
}

function rate(text: string): number {
  const value = whole("--rate")(text);
  if (value <= MOST_RATE) return value;
  throw new CliError("InvalidArgument", `--rate: ${value} is above ${MOST_RATE}`);
}
