import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";

/** OVL_MAX_STACK of the kernel. */
export const MAX_LAYERS = 500;

/**
 * The stack with every layer once, at its topmost place: an overlay refuses one directory twice, and what a layer shows
 * where it stands higher hides all that it shows where it stands lower.
 */
export function withoutRepeats(layers: readonly LayerDigest[]): readonly LayerDigest[] {
  return layers.filter((digest, index) => layers.lastIndexOf(digest) === index);
}

/** Throws `InvalidArgument` when an overlay could not take that many. */
export function checkStack(count: number, what: string): void {
  if (count <= MAX_LAYERS) return;
  throw new SandboxError("InvalidArgument", `${what} has ${count} layers, and an overlay takes ${MAX_LAYERS}`, {
    hint: "flatten the image, or use fewer toolkits",
  });
}
