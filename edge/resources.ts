import { type Backend, RESOURCE_CLASSES, type ResourceClass } from "#core/backend.ts";
import type { SandboxState } from "#core/lifecycle.ts";
import type { ResourceCount } from "#core/node.ts";

const SURPLUS_LIMIT = 20;

/** Classes that a failed sandbox may still have: its files, and what holds them. */
const OF_FAILED: ReadonlySet<ResourceClass> = new Set(["uppers", "mounts", "run-directories"]);

/** What exists on the node against what the edge knows, a class each. */
export async function countResources(
  backends: Iterable<Backend>,
  states: ReadonlyMap<string, SandboxState>,
): Promise<ResourceCount[]> {
  const inventories = await Promise.all([...backends].map((backend) => backend.inventory()));
  return RESOURCE_CLASSES.map((name) => {
    const found = new Set(inventories.flatMap((inventory) => [...inventory[name]]));
    const surplus = [...found].filter((id) => !mayHave(states.get(id), name));
    return {
      class: name,
      expected: [...states.values()].filter((state) => mustHave(state, name)).length,
      found: found.size,
      surplus: surplus.slice(0, SURPLUS_LIMIT),
    };
  });
}

function mustHave(state: SandboxState, name: ResourceClass): boolean {
  return state === "ready" || (state === "failed" && name === "uppers");
}

function mayHave(state: SandboxState | undefined, name: ResourceClass): boolean {
  if (state === undefined || state === "destroyed") return false;
  return state !== "failed" || OF_FAILED.has(name);
}
