import { foreground, lineOf } from "../foreground.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, print } from "../io.ts";
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
  if (options.detach === true) {
    const command = await sandbox.start(lineOf(argv, options), start);
    print(context, { id: command.id, pid: command.pid }, () => `${command.id}\n`);
    return 0;
  }
  using interrupts = new Interrupts(context.io);
  return await foreground(context, sandbox, lineOf(argv, options), { ...start, interrupts });
}
