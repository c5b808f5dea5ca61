import type { CliContext } from "../io.ts";

/** Everything that is known about one sandbox and its commands, as JSON in either form. */
export async function info(context: CliContext, id: string): Promise<number> {
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  const [view, commands] = await Promise.all([sandbox.info(), sandbox.commands()]);
  const document = { ...view, commands };
  context.io.stdout.write(`${JSON.stringify(document, undefined, context.json ? undefined : 2)}\n`);
  return 0;
}
