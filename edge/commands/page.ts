import { SandboxError } from "#core/errors.ts";
import type { CommandId } from "#core/ids.ts";
import type { CommandPage, CommandPageRequest } from "#core/node.ts";
import type { CommandInfo } from "#core/sandbox.ts";
import { type CommandRow, type CommandRows, recordedCommand } from "#edge/commands/rows.ts";

/** Commands of one page however many were asked for. */
const MOST_COMMANDS = 1_000;
/** A command line may have two megabytes: a page ends when its lines have so much, so that it fits a message. */
const ENOUGH_BYTES = 1_500_000;

/** The page that is asked for. `live` knows the commands that have changed since their rows were written. */
export function commandPage(
  rows: CommandRows,
  request: CommandPageRequest,
  live: (id: CommandId) => CommandInfo | undefined,
): CommandPage {
  const limit = Math.min(MOST_COMMANDS, request.limit);
  const commands: CommandInfo[] = [];
  let bytes = 0;
  let last: CommandRow | undefined;
  for (const row of rows.from(cursorOf(request), request.newestFirst)) {
    if (commands.length >= limit || (commands.length > 0 && bytes + lineBytes(row) > ENOUGH_BYTES)) {
      return { commands, cursor: String(last?.number) };
    }
    bytes += lineBytes(row);
    commands.push(live(row.id) ?? recordedCommand(row));
    last = row;
  }
  return { commands, cursor: undefined };
}

/** The number of the last command that the caller has. */
function cursorOf({ cursor, newestFirst }: CommandPageRequest): number {
  if (cursor === undefined) return newestFirst ? Number.MAX_SAFE_INTEGER : 0;
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new SandboxError("InvalidArgument", "the cursor is not one of a page of commands", {
    hint: "take it from the page before, as it is",
    details: { field: "cursor" },
  });
}

function lineBytes({ spec }: CommandRow): number {
  // Bytes that are not text grow by a third on their way, and both have quotes and commas.
  return spec.argv.reduce((sum, argument) => sum + 2 * argument.length + 20, 300);
}
