import { exitStatusOf, noteOn } from "../exit-status.ts";
import { type CliContext, print } from "../io.ts";

/** Waits for the end of a command that was started before; the exit status is the command's. */
export async function wait(context: CliContext, id: string, commandId: string): Promise<number> {
  const client = await context.connect({ start: false });
  const view = await client.sandboxes.use(id).command(commandId).wait();
  const note = noteOn(view.status);
  if (note !== undefined) context.io.stderr.write(`dsec: ${note}\n`);
  print(context, view, () => "");
  return exitStatusOf(view.status);
}
