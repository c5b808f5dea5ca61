import { SandboxError } from "#core/errors.ts";

/** The error of a layer store without room for what it is to take. */
export function storeFull(cause?: unknown): SandboxError {
  return new SandboxError("StorageFull", "the layer store has no room left", {
    cause,
    hint: "remove artifacts that are not used any more, or enlarge the disk of the data directory",
  });
}
