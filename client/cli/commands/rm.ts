import { CliError } from "../cli-error.ts";
import { PLATFORM_FAILURE } from "../exit-status.ts";
import { type CliContext, print } from "../io.ts";
import { compact } from "../spec-options.ts";

/** Sandboxes removed at the same time: enough to keep a node busy, not enough to flood it. */
const CONCURRENCY = 16;

/** Removes sandboxes; each on its own, so that one failure stops no other. One that nobody knows is a mistake unless `force`. */
export async function rm(
  context: CliContext,
  ids: readonly string[],
  options: { readonly all?: boolean; readonly label?: Record<string, string>; readonly force?: boolean },
): Promise<number> {
  const { all = false, label, force = false } = options;
  if ([ids.length > 0, all, label !== undefined].filter(Boolean).length !== 1) {
    throw new CliError("InvalidArgument", "name the sandboxes to remove, or say --all or --label");
  }
  const client = await context.connect({ start: false });
  const meant = ids.length > 0 ? [] : await Array.fromAsync(client.sandboxes.list(compact({ labels: label })));
  const pending = [...ids, ...meant.map((view) => view.id)];
  const results: { id: string; error?: string }[] = [];
  const worker = async () => {
    for (let id = pending.shift(); id !== undefined; id = pending.shift()) {
      try {
        // Removal succeeds for what is gone: a mistyped id shows only here. What a list has named may go meanwhile.
        if (ids.length > 0 && !force) await client.sandboxes.info(id);
        await client.sandboxes.remove(id);
        results.push({ id });
      } catch (error) {
        results.push({ id, error: error instanceof Error ? error.message : String(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  print(context, results, () => results.map((result) => (result.error === undefined ? `${result.id}\n` : "")).join(""));
  const failed = results.filter((result) => result.error !== undefined);
  for (const { id, error } of failed) context.io.stderr.write(`dsec: ${id}: ${error}\n`);
  return failed.length === 0 ? 0 : PLATFORM_FAILURE;
}
