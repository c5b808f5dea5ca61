import { type Backend, type Footprint, RESOURCE_CLASSES, type ResourceClass } from "#core/backend.ts";
import type { SandboxState } from "#core/lifecycle.ts";
import type { ResourceCount } from "#core/node.ts";
import type { BackendKind } from "#core/sandbox.ts";

const SURPLUS_LIMIT = 20;

/** A sandbox as the edge has it in its books. */
export interface Booked {
  readonly backend: BackendKind;
  readonly state: SandboxState;
}

/** What exists on the node against what the edge knows, a class each. */
export async function countResources(
  backends: Iterable<Backend>,
  booked: ReadonlyMap<string, Booked>,
): Promise<ResourceCount[]> {
  const all = [...backends];
  const footprints = new Map(all.map(({ kind, footprint }) => [kind, footprint]));
  const inventories = await Promise.all(all.map((backend) => backend.inventory()));
  const has = ({ backend, state }: Booked, name: ResourceClass) =>
    isSettled(state) && footprints.get(backend)?.[state].has(name) === true;
  return RESOURCE_CLASSES.map((name) => {
    const found = new Set(inventories.flatMap((inventory) => [...inventory[name]]));
    const surplus = [...found].filter((id) => {
      const sandbox = booked.get(id);
      return sandbox === undefined || (isSettled(sandbox.state) && !has(sandbox, name));
    });
    return {
      class: name,
      expected: [...booked.values()].filter((sandbox) => has(sandbox, name)).length,
      found: found.size,
      surplus: surplus.slice(0, SURPLUS_LIMIT),
    };
  });
}

/** Else it may have anything of what it will have, or had. */
function isSettled(state: SandboxState): state is keyof Footprint {
  return state === "ready" || state === "paused" || state === "failed";
}
