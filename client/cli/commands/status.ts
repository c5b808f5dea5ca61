import type { StoreView } from "#sdk";
import { bytesText, type CliContext, print, table } from "../io.ts";

/** The nodes, what exists on each against what should, and whether the store that they share answers. */
export async function status(context: CliContext): Promise<number> {
  const client = await context.connect({ start: false });
  const [nodes, store] = await Promise.all([client.nodes.list(), client.nodes.store()]);
  const full = await Promise.all(
    nodes.map(async (node) => ({ ...node, resources: await client.nodes.resources(node.edge), store })),
  );
  print(context, full, () =>
    full
      .map((node) => {
        const rows = node.resources.map((count) => [
          count.class,
          String(count.expected),
          String(count.found),
          count.surplus.join(" "),
        ]);
        return `node ${node.edge}: ${node.sandboxes} sandboxes\n${table(["CLASS", "EXPECTED", "FOUND", "SURPLUS"], rows)}`;
      })
      .concat(store === undefined ? [] : `store ${store.name}: ${answerOf(store)}\n${onDemandOf(store)}`)
      .join("\n"),
  );
  return 0;
}

/** Empty where nothing is fetched as it is read. */
function onDemandOf({ onDemand }: StoreView): string {
  if (onDemand === undefined) return "";
  const { cachedBytes, cacheLimitBytes, failedReads, lastFailure, trouble } = onDemand;
  const lines = [`data on demand: ${bytesText(cachedBytes)} of ${bytesText(cacheLimitBytes)} in the cache`];
  if (trouble !== undefined) lines.push(`  cannot be fetched since ${timeText(trouble.sinceMs)}: ${trouble.reason}`);
  if (lastFailure !== undefined) {
    lines.push(
      `  reads that failed: ${failedReads}, the last at ${timeText(lastFailure.atMs)}: ${lastFailure.message}`,
    );
  }
  return `${lines.join("\n")}\n`;
}

function timeText(ms: number): string {
  return new Date(ms).toISOString();
}

function answerOf({ problem }: StoreView): string {
  return problem === undefined ? "answers" : `${problem.message}; ${problem.hint ?? problem.kind}`;
}
