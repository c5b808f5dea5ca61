import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import { canonicalJson, sha256Hex } from "./digest.ts";

/** What a layer is: two files and their hashes. Its canonical JSON names it. */
export interface LayerManifest {
  readonly version: 1;
  readonly metadata: { readonly sizeBytes: number; readonly sha256: string };
  readonly data: {
    readonly sizeBytes: number;
    readonly sha256: string;
    readonly chunkBytes: number;
    /** SHA-256 of each piece of `chunkBytes`, hex. */
    readonly chunks: readonly string[];
  };
}

/** Bounds what is read of a manifest file: a chunk digest for each MiB of 64 GiB. */
export const MAX_MANIFEST_BYTES = 2 ** 23;

/** What is stored and hashed. */
export function manifestText(manifest: LayerManifest): string {
  return canonicalJson(manifest);
}

/** The name of the layer that the manifest describes. */
export function digestOf(manifest: LayerManifest): LayerDigest {
  return `sha256:${sha256Hex(manifestText(manifest))}` as LayerDigest;
}

/** Parses a stored manifest and checks that it is the one `digest` names. Throws `Internal` when the file was damaged. */
export function parseManifest(text: string, digest: LayerDigest): LayerManifest {
  if (`sha256:${sha256Hex(text)}` !== digest) throw damagedLayer(digest, "manifest");
  // The hash matches, so this is the text that `manifestText` wrote.
  return JSON.parse(text) as LayerManifest;
}

/** The error for a layer whose files are not what its name promises. */
export function damagedLayer(digest: LayerDigest, part: string): SandboxError {
  return new SandboxError("Internal", `the ${part} of layer ${digest} is damaged in the store`, {
    hint: "remove the artifacts that use the layer and import them again",
    details: { layer: digest, part },
  });
}
