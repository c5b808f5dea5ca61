import type { SandboxView } from "#sdk";
import { CliError } from "../cli-error.ts";
import { ageText, type CliContext, print, table } from "../io.ts";

/** A sandbox with those that were forked from it. */
interface Branch {
  readonly sandbox: SandboxView;
  readonly forks: readonly Branch[];
}

/** The project's sandboxes below those that they were forked from; JSON: nested as they are. */
export async function tree(context: CliContext, id: string | undefined): Promise<number> {
  const client = await context.connect({ start: false });
  const onUnreachable = (edges: readonly string[]) => context.io.stderr.write(`dsec: not asked: ${edges.join(" ")}\n`);
  const views = await Array.fromAsync(client.sandboxes.list({ onUnreachable }));
  const branches = growTree(views, id);
  print(context, branches, () =>
    table(
      ["ID", "STATE", "BASE", "AGE", "FORKED FROM"],
      branches.flatMap((one) => rowsOf(one)),
    ),
  );
  return 0;
}

/** Trees by their roots, in the order of the list; the one that holds `id` alone when it is given. */
export function growTree(views: readonly SandboxView[], id: string | undefined): readonly Branch[] {
  const known = new Map(views.map((view) => [view.id, view]));
  const children = Map.groupBy(views, ({ parent }) => (parent !== undefined && known.has(parent) ? parent : undefined));
  const branchOf = (sandbox: SandboxView): Branch => ({
    sandbox,
    forks: (children.get(sandbox.id) ?? []).map(branchOf),
  });
  const roots = children.get(undefined) ?? [];
  if (id === undefined) return roots.map(branchOf);
  let root = known.get(id);
  if (root === undefined)
    throw new CliError("NotFound", `no sandbox ${JSON.stringify(id)}`, { hint: "dsec ls shows the ids" });
  for (let above = known.get(root.parent ?? ""); above !== undefined; above = known.get(root.parent ?? ""))
    root = above;
  return [branchOf(root)];
}

function rowsOf({ sandbox, forks }: Branch, first = "", rest = ""): string[][] {
  const age = ageText(Date.now() - sandbox.createdAtMs);
  // Of a branch the lines show it; a root may have come from one that is gone.
  const from = first === "" ? (sandbox.parent ?? "") : "";
  const row = [first + sandbox.id, sandbox.state, sandbox.base, age, from];
  const below = forks.flatMap((fork, index) => {
    const isLast = index === forks.length - 1;
    return rowsOf(fork, `${rest}${isLast ? "└─ " : "├─ "}`, `${rest}${isLast ? "   " : "│  "}`);
  });
  return [row, ...below];
}
