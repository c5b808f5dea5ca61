import { createSandbox } from "../base.ts";
import { type CliContext, print } from "../io.ts";
import { createRequest, type SpecOptions } from "../spec-options.ts";
import { workspaceName } from "../workspace.ts";

/** A sandbox that stays; its id on stdout. */
export async function create(context: CliContext, options: SpecOptions): Promise<number> {
  const client = await context.connect({ start: true });
  const workspace = await workspaceName(client, options, {});
  const sandbox = await createSandbox(client, createRequest(options, workspace), context.io, {});
  print(context, sandbox.view, () => `${sandbox.id}\n`);
  return 0;
}
