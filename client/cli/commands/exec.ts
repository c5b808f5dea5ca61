import type { TerminalOptions } from "#sdk";
import { CliError } from "../cli-error.ts";
import { foreground, lineOf } from "../foreground.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, print } from "../io.ts";
import { joinTerminal, sizeFor } from "../on-terminal.ts";
import { compact } from "../spec-options.ts";

/** Options of `exec`. */
export interface ExecOptions {
  readonly env?: Record<string, string>;
  readonly user?: string;
  readonly workdir?: string;
  readonly timeLimit?: number;
  readonly pipes?: boolean;
  readonly shell?: boolean;
  readonly detach?: boolean;
  readonly tty?: boolean;
  readonly interactive?: boolean;
}

/** A command in a sandbox that is there. Detached, it goes on by itself and its id is printed. */
export async function exec(
  context: CliContext,
  id: string,
  argv: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  const { env, user, workdir: cwd, timeLimit: timeLimitMs } = options;
  const waitFor = options.pipes === true ? ("pipes" as const) : undefined;
  const start = compact({ env, user, cwd, timeLimitMs, waitFor });
  const line = lineOf(argv, options);
  const terminal = options.tty === true ? terminalFor(context, options) : undefined;
  if (options.detach === true) {
    const command = await (terminal === undefined
      ? sandbox.start(line, start)
      : sandbox.terminal({ ...start, ...terminal, env: { ...terminal.env, ...env }, line }));
    print(context, { id: command.id, pid: command.pid }, () => `${command.id}\n`);
    return 0;
  }
  if (terminal !== undefined) {
    const command = await sandbox.terminal({ ...start, ...terminal, env: { ...terminal.env, ...env }, line });
    return await joinTerminal(context, command, { input: options.interactive === true, onLeave: "hang-up" });
  }
  using interrupts = new Interrupts(context.io);
  return await foreground(context, sandbox, line, { ...start, interrupts });
}

/** A terminal like the person's, as far as there is one. */
function terminalFor(context: CliContext, options: ExecOptions): Pick<TerminalOptions, "size" | "env"> {
  if (context.json && options.detach !== true) {
    throw new CliError("InvalidArgument", "a terminal has no result to show as JSON");
  }
  const size = sizeFor(context, options.interactive === true && options.detach !== true);
  const kind = context.io.terminal?.kind;
  return compact({ size, env: kind === undefined ? undefined : { TERM: kind } });
}
