import type { RawValue, Setting } from "#core/settings.ts";

/** Any text. Without a default the value may be undefined. */
export function text(fallback: string, help: string): Setting<string>;
export function text(fallback: undefined, help: string): Setting<string | undefined>;
export function text(fallback: string | undefined, help: string): Setting<string | undefined> {
  return { placeholder: "TEXT", help, fallback, parse: asText };
}

/** A path, taken as it is written; never empty. */
export function path(fallback: string, help: string): Setting<string>;
export function path(fallback: undefined, help: string): Setting<string | undefined>;
export function path(fallback: string | undefined, help: string): Setting<string | undefined> {
  const parse = (raw: RawValue) => {
    const value = asText(raw);
    if (value === "" || value.includes("\0")) throw new Error("is not a path");
    return value;
  };
  return { placeholder: "PATH", help, fallback, parse };
}

/** A DNS name, in lower case. */
export function domain(help: string): Setting<string | undefined> {
  const parse = (raw: RawValue) => {
    const name = asText(raw).toLowerCase();
    const labels = name.split(".");
    const good = name.length <= 200 && labels.every((label) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(label));
    if (!good) throw new Error("is not a domain such as ports.example.org");
    return name;
  };
  return { placeholder: "DOMAIN", help, fallback: undefined, parse };
}

/** A whole number within bounds, both included. */
export function integer(
  fallback: string,
  help: string,
  bounds: { readonly min?: number; readonly max?: number } = {},
): Setting<number> {
  const min = bounds.min ?? 0;
  const max = bounds.max ?? Number.MAX_SAFE_INTEGER;
  const parse = (raw: RawValue) => {
    const value = typeof raw === "number" ? raw : /^-?\d+$/.test(asText(raw)) ? Number(raw) : Number.NaN;
    if (!Number.isSafeInteger(value) || value < min || value > max) {
      throw new Error(`is not a whole number from ${min} to ${max}`);
    }
    return value;
  };
  return { placeholder: "NUMBER", help, fallback, parse };
}

const MEBIBYTES: Readonly<Record<string, number>> = { MiB: 1, GiB: 1024, TiB: 1024 * 1024 };

/** An amount of bytes in MiB, written with its unit: `512MiB`, `4GiB`. A bare number is refused: nobody knows its unit. */
export function mebibytes(fallback: string, help: string): Setting<number>;
export function mebibytes(fallback: undefined, help: string): Setting<number | undefined>;
export function mebibytes(fallback: string | undefined, help: string): Setting<number | undefined> {
  return { placeholder: "SIZE", help, fallback, parse: (raw) => parseMebibytes(asText(raw)) };
}

/** MiB of a text such as `512MiB` or `1.5GiB`; throws a plain `Error` otherwise. */
function parseMebibytes(raw: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*(MiB|GiB|TiB)$/.exec(raw);
  const amount = Number(match?.[1]) * (MEBIBYTES[match?.[2] ?? ""] ?? Number.NaN);
  if (!Number.isSafeInteger(amount) || amount <= 0) throw new Error("is not a size like 512MiB or 4GiB");
  return amount;
}

const MILLISECONDS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A length of time in milliseconds, written with its unit: `250ms`, `2s`, `15m`, `12h`, `7d`. */
export function durationMs(fallback: string, help: string): Setting<number>;
export function durationMs(fallback: undefined, help: string): Setting<number | undefined>;
export function durationMs(fallback: string | undefined, help: string): Setting<number | undefined> {
  return { placeholder: "TIME", help, fallback, parse: (raw) => parseDurationMs(asText(raw)) };
}

/** Milliseconds of a text such as `250ms` or `2h`; throws a plain `Error` otherwise. */
function parseDurationMs(raw: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(raw);
  const amount = Number(match?.[1]) * (MILLISECONDS[match?.[2] ?? ""] ?? Number.NaN);
  if (!Number.isSafeInteger(amount) || amount <= 0) throw new Error("is not a time like 250ms, 2s, 15m or 12h");
  return amount;
}

/** One of a few words. */
export function choice<const Word extends string>(words: readonly Word[], fallback: Word, help: string): Setting<Word> {
  const parse = (raw: RawValue) => {
    const word = words.find((candidate) => candidate === raw);
    if (word === undefined) throw new Error(`is none of ${words.join(", ")}`);
    return word;
  };
  return { placeholder: words.join("|"), help, fallback, parse };
}

/** On or off: `--name`, `--no-name`, `true`, `false`. */
export function flag(fallback: boolean, help: string): Setting<boolean> {
  const parse = (raw: RawValue) => {
    const value = String(raw);
    if (value === "true" || value === "1") return true;
    if (value === "false" || value === "0") return false;
    throw new Error("is neither true nor false");
  };
  return { placeholder: undefined, help, fallback: String(fallback), parse };
}

function asText(raw: RawValue): string {
  if (typeof raw !== "string") throw new Error("is not text");
  return raw;
}
