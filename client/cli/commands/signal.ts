import type { CliContext } from "../io.ts";

/** Signals the process group of a command, by name or number. No effect once it has ended. */
export async function signal(context: CliContext, id: string, commandId: string, name: string): Promise<number> {
  const client = await context.connect({ start: false });
  const given = /^\d+$/.test(name) ? Number(name) : name;
  await client.sandboxes.use(id).command(commandId).signal(given);
  return 0;
}
