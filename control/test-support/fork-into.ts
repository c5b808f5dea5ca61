import type { SandboxId } from "#core/ids.ts";
import { childSpec, type ForkChild, type Forked } from "#core/packing.ts";
import type { SandboxInfo } from "#core/sandbox.ts";

/** Makes children of a sandbox among others; the last one finds no room unless it is there. */
export function forkInto(
  sandboxes: Map<SandboxId, SandboxInfo>,
  parent: SandboxInfo,
  children: readonly ForkChild[],
): Forked["outcomes"] {
  const full = { kind: "NodeFull", message: "no room for the last one" } as const;
  return children.map((child, index) => {
    if (index === children.length - 1 && !sandboxes.has(child.id)) return { error: full };
    sandboxes.set(child.id, { ...parent, spec: childSpec(parent.spec, child) });
    return {};
  });
}
