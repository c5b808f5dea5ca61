import type { Readable, Writable } from "node:stream";
import type { Client } from "#sdk";
import { CliError, hasCode } from "./cli-error.ts";

/** What a command of the CLI may touch. Everything comes in as an argument, so that nothing else is reached. */
export interface CliContext {
  readonly io: Io;
  /** True: results as JSON on stdout, one document (or one a line where noted). */
  readonly json: boolean;
  /** The apiserver to talk to. `start` allows to start a node on this machine when nobody answers. */
  connect(options: { readonly start: boolean }): Promise<Client>;
}

/** The process's own streams and signals. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** The terminal that stdin and stdout are; undefined unless both are one. */
  readonly terminal: LocalTerminal | undefined;
  /** Calls back on each arrival of the signal until disposed. */
  onSignal(name: NodeJS.Signals, action: () => void): Disposable;
}

/** The terminal of the person who called. */
export interface LocalTerminal {
  /** What kind it is, as TERM says. */
  readonly kind: string | undefined;
  size(): { readonly rows: number; readonly cols: number };
  /** Calls back with each new size until disposed. */
  onResize(action: () => void): Disposable;
  /** Every key comes as it is typed, Ctrl-C too, until disposed or the process ends, however it does. */
  raw(): Disposable;
}

/** Text for people or JSON for programs, whichever was asked for. */
export function print(context: CliContext, json: unknown, text: () => string): void {
  context.io.stdout.write(context.json ? `${JSON.stringify(json)}\n` : text());
}

/** Resolves when the sink wants more: true, or nobody reads it any more: false. Throws when the bytes have no room. */
export function writeTo(sink: Writable, bytes: Uint8Array): Promise<boolean> {
  return new Promise((resolve, reject) => {
    sink.write(bytes, (error) => {
      const failure = error ?? sink.errored;
      if (failure === undefined || failure === null) resolve(true);
      else if (hasCode(failure, "EPIPE", "ERR_STREAM_DESTROYED", "ECONNRESET")) resolve(false);
      else
        reject(new CliError("FailedPrecondition", `stdout cannot be written: ${failure.message}`, { cause: failure }));
    });
  });
}

/** Resolves when everything written so far has left this process, or nobody reads it any more. Throws when it has no room. */
export async function passedOn(sink: Writable): Promise<void> {
  await writeTo(sink, new Uint8Array());
}

/** Rows in aligned columns under a heading. Control characters of other people's names are made harmless. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const clean = [heading, ...rows.map((row) => row.map(printable))];
  const widths = heading.map((_, column) => Math.max(...clean.map((row) => (row[column] ?? "").length)));
  const line = (row: readonly string[]) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ");
  return clean.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Text that cannot move the cursor, colour the terminal or turn the direction of what it shows. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return code.length > 2 ? `\\u{${code}}` : `\\x${code.padStart(2, "0")}`;
  });
}

/** A size for people: at most one decimal, binary units. */
export function bytesText(bytes: number): string {
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return `${Number.isInteger(amount) ? amount : amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

/** A length of time for people, in its largest whole unit. */
export function ageText(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
