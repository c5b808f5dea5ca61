import { hasCode, SandboxError } from "#core/errors.ts";

/** What a caller is told of an error of work on a machine's disk: that there is no room for disks, if it was that. */
export function roomError(error: unknown): unknown {
  if (!hasCode(error, "ENOSPC", "EDQUOT")) return error;
  return new SandboxError("StorageFull", "the volume of the disks of such sandboxes on this node is full", {
    cause: error,
    hint: "destroy sandboxes, or enlarge the volume",
  });
}
