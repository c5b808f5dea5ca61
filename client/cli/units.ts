import { CliError } from "./cli-error.ts";

const MEBIBYTES: Readonly<Record<string, number>> = { M: 1, MiB: 1, G: 1024, GiB: 1024, T: 1_048_576, TiB: 1_048_576 };
const MILLISECONDS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** MiB of a text such as `512MiB` or `4G`. */
export function sizeMiB(option: string): (text: string) => number {
  return (text) => amount(option, text, MEBIBYTES, "a size such as 512MiB or 4GiB");
}

/** Milliseconds of a text such as `30s` or `2h`. */
export function timeMs(option: string): (text: string) => number {
  return (text) => amount(option, text, MILLISECONDS, "a time such as 500ms, 30s, 15m or 2h");
}

/** The same, or `none` for no limit. */
export function timeOrNone(option: string): (text: string) => number | "none" {
  const time = timeMs(option);
  return (text) => (text === "none" ? text : time(text));
}

/** A number above zero. */
export function positive(option: string): (text: string) => number {
  return (text) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (!(value > 0 && Number.isFinite(value))) throw wrong(option, text, "a number above 0");
    return value;
  };
}

/** A number from 0 to 1. */
export function share(option: string): (text: string) => number {
  return (text) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (!(value <= 1)) throw wrong(option, text, "a number from 0 to 1");
    return value;
  };
}

/** A whole number from 1 on. */
export function whole(option: string): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= 1 && Number.isSafeInteger(value))) throw wrong(option, text, "a whole number from 1 on");
    return value;
  };
}

/** `NAME=VALUE`, gathered over the times that an option is given. */
export function pair(option: string): (text: string, earlier?: Record<string, string>) => Record<string, string> {
  return (text, earlier = {}) => {
    const at = text.indexOf("=");
    if (at < 1) throw wrong(option, text, "NAME=VALUE");
    return { ...earlier, [text.slice(0, at)]: text.slice(at + 1) };
  };
}

/** Texts gathered over the times that an option is given. */
export function several(text: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, text];
}

function amount(option: string, text: string, units: Readonly<Record<string, number>>, wanted: string): number {
  const match = /^(\d+(?:\.\d+)?)([a-zA-Z]+)$/.exec(text);
  const value = Number(match?.[1]) * (units[match?.[2] ?? ""] ?? Number.NaN);
  if (!(value > 0 && Number.isSafeInteger(value))) throw wrong(option, text, wanted);
  return value;
}

function wrong(option: string, text: string, wanted: string): CliError {
  return new CliError("InvalidArgument", `${option}: ${JSON.stringify(text)} is not ${wanted}`);
}
