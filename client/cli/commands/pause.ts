import { PLATFORM_FAILURE } from "../exit-status.ts";
import { type CliContext, printable } from "../io.ts";

/** Pauses sandboxes, or resumes them; each on its own, so that one failure stops no other. The ids of those that are as asked on stdout. */
export async function pauseOrResume(
  context: CliContext,
  verb: "pause" | "resume",
  ids: readonly string[],
): Promise<number> {
  const { io, json } = context;
  const client = await context.connect({ start: false });
  const failures = await Promise.all(
    ids.map(async (id) => {
      try {
        const view = await client.sandboxes.use(id)[verb]();
        io.stdout.write(json ? `${JSON.stringify(view)}\n` : `${view.id}\n`);
        return 0;
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        io.stderr.write(`dsec: ${id}: ${printable(message)}\n`);
        return 1;
      }
    }),
  );
  return failures.includes(1) ? PLATFORM_FAILURE : 0;
}
