import type { Writable } from "node:stream";
import type { Command } from "#sdk";
import { CliError } from "../cli-error.ts";
import { type CliContext, writeTo } from "../io.ts";

/** Options of `logs`. */
export interface LogsOptions {
  readonly follow?: boolean;
  /** Of both streams: what comes before it is left out. */
  readonly sinceOffset?: number;
}

/** What a command wrote, its stdout to ours, its stderr to ours; the last command unless one is named. */
export async function logs(
  context: CliContext,
  id: string,
  commandId: string | undefined,
  options: LogsOptions,
): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  const last = commandId ?? (await sandbox.commands({ newestFirst: true, limit: 1 }))[0]?.id;
  if (last === undefined) throw new CliError("NotFound", `nothing has run in ${id}`);
  const command = sandbox.command(last);
  const { stdout, stderr } = context.io;
  const reading = { follow: options.follow === true, offset: options.sinceOffset ?? 0 };
  await Promise.all([
    copy(command, "stdout", stdout, context, reading),
    copy(command, "stderr", stderr, context, reading),
  ]);
  return 0;
}

async function copy(
  command: Command,
  stream: "stdout" | "stderr",
  sink: Writable,
  context: CliContext,
  reading: { readonly follow: boolean; readonly offset: number },
): Promise<void> {
  let expected = reading.offset;
  for await (const { offset, bytes } of command.output(stream, reading)) {
    if (offset > expected) context.io.stderr.write(`dsec: ${offset - expected} bytes of ${stream} were not kept\n`);
    expected = offset + bytes.byteLength;
    if (!(await writeTo(sink, bytes))) return;
  }
}
