import type { CommandView } from "#sdk";
import { bytesText, type CliContext, table } from "../io.ts";

/** What was started in a sandbox: a table, or one JSON object a line. */
export async function commands(context: CliContext, id: string): Promise<number> {
  const client = await context.connect({ start: false });
  const found = await client.sandboxes.use(id).commands();
  if (context.json) for (const view of found) context.io.stdout.write(`${JSON.stringify(view)}\n`);
  else context.io.stdout.write(table(["ID", "PID", "STATE", "STDOUT", "STDERR", "COMMAND"], found.map(rowOf)));
  return 0;
}

function rowOf({ id, pid, status, stdout, stderr, argv }: CommandView): string[] {
  const state = status === undefined ? "running" : (status.code ?? status.cause);
  const words = argv.map((word) => (typeof word === "string" ? word : "…")).join(" ");
  return [id, String(pid), String(state), bytesText(stdout.seen), bytesText(stderr.seen), words.slice(0, 80)];
}
