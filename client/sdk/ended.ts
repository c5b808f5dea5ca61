import type { CommandView } from "#api/index.ts";

/** A command whose end was observed. */
export type EndedCommand = CommandView & { readonly status: NonNullable<CommandView["status"]> };

/** True when the command's end was observed. */
export function hasEnded(view: CommandView): view is EndedCommand {
  return view.status !== undefined;
}
