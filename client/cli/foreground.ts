import type { Command, CommandLine, Result, Sandbox, StartOptions } from "#sdk";
import { attach } from "./attach.ts";
import { exitStatusOf, noteOn } from "./exit-status.ts";
import type { Interrupts } from "./interrupts.ts";
import type { CliContext } from "./io.ts";
import { bytesOrText } from "./words.ts";

/** Runs a command attached to this process and returns the exit status for it. A person who leaves kills it. */
export async function foreground(
  context: CliContext,
  sandbox: Sandbox,
  line: CommandLine,
  options: StartOptions & { readonly interrupts: Interrupts },
): Promise<number> {
  const { interrupts, ...start } = options;
  const command = await sandbox.start(line, { ...start, stdin: "pipe", signal: interrupts.signal });
  return await seeThrough(context, command, interrupts);
}

/** Stays attached to a command that was started with input until it has ended; the exit status for its end. */
export async function seeThrough(context: CliContext, command: Command, interrupts: Interrupts): Promise<number> {
  const { signal } = interrupts;
  interrupts.forward = (name) => command.signal(name);
  try {
    if (context.json) {
      command.pipe(context.io.stdin, { signal }).catch(() => undefined);
      const result = await command.result({ signal });
      context.io.stdout.write(`${JSON.stringify(resultJson(result))}\n`);
      return exitStatusOf(result.status);
    }
    const { status } = await attach(command, context.io, signal);
    const note = noteOn(status);
    if (note !== undefined) context.io.stderr.write(`dsec: ${note}\n`);
    return exitStatusOf(status);
  } catch (error) {
    if (interrupts.left === undefined) throw error;
    await command.signal("SIGKILL", { timeoutMs: 5_000 }).catch(() => undefined);
    return interrupts.left;
  }
}

/** A shell line or a program, as the person said. */
export function lineOf(argv: readonly string[], options: { readonly shell?: boolean }): CommandLine {
  if (options.shell !== true) return argv.map(bytesOrText);
  const line = bytesOrText(argv.join(" "));
  return typeof line === "string" ? line : ["/bin/sh", "-c", line];
}

/** A result as JSON shows it. */
export function resultJson(result: Result): Record<string, unknown> {
  return {
    status: result.status,
    truncated: result.truncated,
    ...textOrBase64("stdout", result.stdout),
    ...textOrBase64("stderr", result.stderr),
  };
}

/** Text where the bytes are UTF-8, else base64 under another key: nothing is replaced silently. */
function textOrBase64(name: string, bytes: Uint8Array): Record<string, string> {
  try {
    return { [name]: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { [`${name}Base64`]: Buffer.from(bytes).toString("base64") };
  }
}
