import type { ForkOptions } from "#sdk";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { type CliContext, printable } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Options of `fork`. */
export interface ForkCliOptions {
  readonly count?: number;
  readonly label?: Record<string, string>;
  readonly nodes?: ForkOptions["nodes"];
  readonly paused?: boolean;
  readonly filesOnly?: boolean;
}

/** Forks a sandbox: the id of each on stdout, as JSON a line with its index; what failed on stderr. Success when all are there. */
export async function fork(context: CliContext, id: string, options: ForkCliOptions): Promise<number> {
  const { io, json } = context;
  const client = await context.connect({ start: false });
  const { count = 1, label: labels, nodes, paused, filesOnly } = options;
  const memory = filesOnly === true ? false : undefined;
  const { forks } = await client.sandboxes.use(id).fork({ count, ...compact({ labels, nodes, paused, memory }) });
  let failed = 0;
  for (const made of forks) {
    if ("sandbox" in made) {
      const { index, sandbox } = made;
      io.stdout.write(json ? `${JSON.stringify({ index, sandbox: sandbox.view })}\n` : `${sandbox.id}\n`);
      continue;
    }
    failed += 1;
    if (json) io.stdout.write(`${JSON.stringify({ index: made.index, error: made.error.message })}\n`);
    io.stderr.write(`dsec: fork ${made.index}: ${printable(made.error.message)}\n`);
  }
  return failed === 0 ? 0 : PLATFORM_FAILURE;
}
