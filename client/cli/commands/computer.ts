import { CliError } from "../cli-error.ts";
import { type CliContext, print } from "../io.ts";

/** Types a text. */
export async function type(context: CliContext, id: string, text: string): Promise<number> {
  await (await computerOf(context, id)).type(text);
  return 0;
}

/** Presses chords, one after the other. */
export async function key(context: CliContext, id: string, chords: readonly string[]): Promise<number> {
  const actions = chords.map((chord) => ({ type: "keys" as const, keys: keysOf(chord) }));
  await (await computerOf(context, id)).input(actions);
  return 0;
}

/** Options of `click`. */
export interface ClickOptions {
  readonly button?: string;
  readonly double?: boolean;
  readonly to?: string;
  readonly scroll?: string;
}

/** Clicks, drags or turns the wheel at a place. */
export async function click(
  context: CliContext,
  id: string,
  [x, y]: readonly [string, string],
  { button: name, double, to, scroll }: ClickOptions,
): Promise<number> {
  if ([double, to, scroll].filter((option) => option !== undefined).length > 1) {
    throw new CliError("InvalidArgument", "--double, --to and --scroll do not go together", {
      hint: "give one of them",
    });
  }
  if (scroll !== undefined && name !== undefined) {
    throw new CliError("InvalidArgument", "--button means nothing with --scroll", { hint: "leave it out" });
  }
  const at = { x: point("x", x), y: point("y", y) };
  const button = buttonOf(name);
  const computer = await computerOf(context, id);
  if (to !== undefined) await computer.input([{ type: "drag", from: at, to: placeOf(to), button }]);
  else if (scroll !== undefined) await computer.scroll(at, notchesOf(scroll));
  else await computer.click(at, { button, count: double === true ? 2 : 1 });
  return 0;
}

/** Acts on the power, or tells how it is. */
export async function power(context: CliContext, id: string, action: string | undefined): Promise<number> {
  const known = ["press", "on", "off", "reset"] as const;
  const wanted = known.find((each) => each === action);
  if (action !== undefined && wanted === undefined) {
    throw new CliError("InvalidArgument", `${JSON.stringify(action)} is not one of ${known.join(", ")}`);
  }
  const computer = await computerOf(context, id);
  if (wanted !== undefined) {
    await computer.power(wanted);
    return 0;
  }
  const info = await computer.info();
  print(context, info, () => `${info.power}\n`);
  return 0;
}

async function computerOf(context: CliContext, id: string) {
  return (await context.connect({ start: false })).sandboxes.use(id).computer;
}

/** A plus sign at the end is the key itself. */
function keysOf(chord: string): string[] {
  const keys = chord.replace(/(^|\+)\+$/, "$1plus").split("+");
  if (keys.every((name) => name !== "")) return keys.flatMap((name) => (name === "plus" ? ["shift", name] : [name]));
  throw new CliError("InvalidArgument", `${JSON.stringify(chord)} is no chord`, { hint: "as in ctrl+alt+delete" });
}

function point(name: string, text: string): number {
  if (/^\d{1,5}$/.test(text)) return Number(text);
  throw new CliError("InvalidArgument", `${name}: ${JSON.stringify(text)} is no number of points`);
}

function placeOf(text: string): { x: number; y: number } {
  const [x = "", y = ""] = text.split(",");
  return { x: point("--to", x), y: point("--to", y) };
}

function notchesOf(text: string): number {
  if (/^-?\d{1,3}$/.test(text)) return Number(text);
  throw new CliError("InvalidArgument", `--scroll: ${JSON.stringify(text)} is no number of notches`);
}

function buttonOf(name = "left"): "left" | "middle" | "right" {
  const known = ["left", "middle", "right"] as const;
  const button = known.find((each) => each === name);
  if (button !== undefined) return button;
  throw new CliError("InvalidArgument", `--button: ${JSON.stringify(name)} is not one of ${known.join(", ")}`);
}
