import { CliError } from "../cli-error.ts";
import type { CliContext } from "../io.ts";
import { joinTerminal } from "../on-terminal.ts";

/** Options of `attach`. */
export interface AttachOptions {
  /** False: only look. */
  readonly input: boolean;
}

/** Joins a command that runs, with all that it has written so far; the last one unless one is named. It goes on without us. */
export async function attach(
  context: CliContext,
  id: string,
  commandId: string | undefined,
  options: AttachOptions,
): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  const last = commandId ?? (await sandbox.commands({ newestFirst: true, limit: 1 }))[0]?.id;
  if (last === undefined) throw new CliError("NotFound", `nothing has run in ${id}`);
  return await joinTerminal(context, sandbox.command(last), { input: options.input, onLeave: "go-on" });
}
