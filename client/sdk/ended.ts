import type { CommandView } from "#api/index.ts";

/** A command whose end was observed. */
export type EndedCommand = CommandView & { readonly status: NonNullable<CommandView["status"]> };

/** True when the end that the command waits for was observed: its own, and with `pipes` that of its outputs as well. */
export function hasEnded(view: CommandView): view is EndedCommand {
  if (view.status === undefined) return false;
  return view.waitFor !== "pipes" || (view.stdout.ended && view.stderr.ended);
}
