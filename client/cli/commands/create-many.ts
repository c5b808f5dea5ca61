import { ensureBase } from "../base.ts";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, printable } from "../io.ts";
import { Progress } from "../progress.ts";
import { compact, createRequest, type SpecOptions } from "../spec-options.ts";
import { workspaceName } from "../workspace.ts";

/** Options of `create --count`. */
export interface CreateManyOptions extends SpecOptions {
  readonly count: number;
  readonly concurrency?: number;
}

/**
 * Many sandboxes that stay: the id of each on stdout as it is ready, as JSON a line with its index; what failed on stderr. Success
 * when all are there. A person who leaves keeps those that were printed.
 */
export async function createMany(context: CliContext, options: CreateManyOptions): Promise<number> {
  const { io, json } = context;
  using interrupts = new Interrupts(io);
  const { signal } = interrupts;
  const client = await context.connect({ start: true });
  const request = createRequest(options, await workspaceName(client, options, { signal }));
  await ensureBase(client, request.base, io, { signal });
  using progress = new Progress(io, options.count);
  const { concurrency } = options;
  try {
    for await (const created of client.sandboxes.createMany(options.count, request, compact({ concurrency, signal }))) {
      progress.clear();
      if ("sandbox" in created) {
        const { index, sandbox } = created;
        io.stdout.write(json ? `${JSON.stringify({ index, sandbox: sandbox.view })}\n` : `${sandbox.id}\n`);
      } else {
        const { index, error } = created;
        if (json) io.stdout.write(`${JSON.stringify({ index, error: error.message })}\n`);
        io.stderr.write(`dsec: sandbox ${index}: ${printable(error.message)}\n`);
      }
      progress.count("sandbox" in created);
    }
  } catch (error) {
    if (interrupts.left !== undefined) return interrupts.left;
    throw error;
  }
  return progress.failed === 0 ? 0 : PLATFORM_FAILURE;
}
