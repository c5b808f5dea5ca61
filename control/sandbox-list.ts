import type { Node, SandboxFilter } from "#core/node.ts";
import type { SandboxInfo } from "#core/sandbox.ts";

/** The sandboxes of a node in the order of their ids, a message at a time. */
export async function* sandboxesOf(
  node: Pick<Node, "list">,
  filter: SandboxFilter,
  signal: AbortSignal,
): AsyncGenerator<SandboxInfo, void, undefined> {
  for (let { after } = filter; ; ) {
    const found = await node.list({ ...filter, ...(after === undefined ? {} : { after }) }, signal);
    yield* found;
    after = found.at(-1)?.spec.id;
    if (after === undefined) return;
  }
}

/** The first `limit` of them. */
export async function firstSandboxesOf(
  node: Pick<Node, "list">,
  filter: SandboxFilter & { readonly limit: number },
  signal: AbortSignal,
): Promise<readonly SandboxInfo[]> {
  const found: SandboxInfo[] = [];
  for await (const info of sandboxesOf(node, filter, signal)) {
    found.push(info);
    if (found.length >= filter.limit) break;
  }
  return found;
}
