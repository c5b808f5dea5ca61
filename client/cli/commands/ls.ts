import type { SandboxView } from "#sdk";
import { ageText, type CliContext, table } from "../io.ts";
import { compact } from "../spec-options.ts";

/** The project's sandboxes: a table, or one JSON object a line. */
export async function ls(context: CliContext, options: { readonly label?: Record<string, string> }): Promise<number> {
  const client = await context.connect({ start: false });
  const found: SandboxView[] = [];
  const onUnreachable = (edges: readonly string[]) => context.io.stderr.write(`dsec: not asked: ${edges.join(" ")}\n`);
  for await (const view of client.sandboxes.list({ ...compact({ labels: options.label }), onUnreachable })) {
    if (context.json) context.io.stdout.write(`${JSON.stringify(view)}\n`);
    else found.push(view);
  }
  if (!context.json) context.io.stdout.write(table(["ID", "STATE", "BASE", "COMMANDS", "AGE"], found.map(rowOf)));
  return 0;
}

function rowOf(view: SandboxView): string[] {
  const age = ageText(Date.now() - view.createdAtMs);
  return [view.id, view.state, view.base, String(view.runningCommands), age];
}
