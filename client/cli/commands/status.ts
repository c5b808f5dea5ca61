import { type CliContext, print, table } from "../io.ts";

/** The nodes, and what exists on each against what should. */
export async function status(context: CliContext): Promise<number> {
  const client = await context.connect({ start: false });
  const nodes = await client.nodes.list();
  const full = await Promise.all(
    nodes.map(async (node) => ({ ...node, resources: await client.nodes.resources(node.edge) })),
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
      .join("\n"),
  );
  return 0;
}
