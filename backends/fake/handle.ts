import type { Handle } from "#core/backend.ts";
import type { SandboxId } from "#core/ids.ts";

/** What the edge stores of a fake sandbox. */
export function handleOf(id: SandboxId, bootId: string): Handle {
  return { version: 1, id, opaque: { bootId } };
}

/** The boot a handle names; undefined for a handle of others. */
export function bootOf(handle: Handle): string | undefined {
  const { bootId } = handle.opaque;
  return handle.version === 1 && typeof bootId === "string" ? bootId : undefined;
}
