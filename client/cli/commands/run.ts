import { createSandbox } from "../base.ts";
import { foreground, lineOf } from "../foreground.ts";
import { Interrupts } from "../interrupts.ts";
import type { CliContext } from "../io.ts";
import { compact, createRequest, type SpecOptions } from "../spec-options.ts";
import { workspaceName } from "../workspace.ts";

/** Options of `run`: the sandbox's, and the command's. */
export interface RunOptions extends SpecOptions {
  readonly timeLimit?: number;
  readonly pipes?: boolean;
  readonly shell?: boolean;
}

/** When this process is killed nobody is left to remove the sandbox: the node does, so long after the command's end. */
const ABANDONED_MS = 60_000;

/** A sandbox for one command: made, used, removed whatever happens. The exit status is the command's. */
export async function run(context: CliContext, argv: readonly string[], options: RunOptions): Promise<number> {
  using interrupts = new Interrupts(context.io);
  const { signal } = interrupts;
  try {
    const client = await context.connect({ start: true });
    const workspace = await workspaceName(client, options, { signal });
    const sandbox = await createSandbox(
      client,
      createRequest({ idleTimeout: ABANDONED_MS, ...options }, workspace),
      context.io,
      { signal },
    );
    try {
      const waitFor = options.pipes === true ? ("pipes" as const) : undefined;
      const start = compact({ timeLimitMs: options.timeLimit, waitFor });
      return await foreground(context, sandbox, lineOf(argv, options), { ...start, interrupts });
    } finally {
      await sandbox.remove();
    }
  } catch (error) {
    if (interrupts.left !== undefined) return interrupts.left;
    throw error;
  }
}
