import type { FunctionLease } from "#core/functions.ts";
import { type EdgeId, newSandboxId } from "#core/ids.ts";
import type { Resources } from "#core/sandbox.ts";
import type { Admission } from "#edge/admission.ts";

/** Promises a container of functions its place on the node. Throws `NodeFull`. */
export function leaseFor(admission: Admission, edge: EdgeId, resources: Resources): FunctionLease {
  const { slot } = admission.admit(resources);
  let isHeld = true;
  return {
    id: newSandboxId(edge),
    slot,
    release() {
      if (isHeld) admission.release(resources, slot);
      isHeld = false;
    },
  };
}
