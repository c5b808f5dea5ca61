import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";
import {
  type BlobDigest,
  canonicalJson,
  hexOf,
  isBlobDigest,
  isByteCount,
  isHexDigest,
  jsonObject,
  sha256Hex,
} from "./digest.ts";
import { MAX_DEVICES } from "./erofs/format.ts";

/** What a layer is: a metadata image and the blobs that it points into. Its canonical JSON names it. */
export interface LayerManifest {
  readonly version: 2;
  readonly metadata: { readonly sizeBytes: number; readonly sha256: string };
  /** In the order of the image's devices. */
  readonly blobs: readonly LayerBlob[];
}

/** A blob as layers refer to it. */
export interface LayerBlob {
  readonly digest: BlobDigest;
  readonly sizeBytes: number;
}

/** Names of the files of one layer, in every store and while it is built. */
export const LAYER_FILES = { metadata: "metadata.erofs", manifest: "manifest.json" } as const;

/** Bounds what is read of a manifest file: all the blobs that an image can name. */
export const MAX_MANIFEST_BYTES = 2 ** 16;

/** What is stored and hashed. */
export function manifestText(manifest: LayerManifest): string {
  return canonicalJson(manifest);
}

/** The name of the layer that the manifest describes. */
export function digestOf(manifest: LayerManifest): LayerDigest {
  return `sha256:${sha256Hex(manifestText(manifest))}` as LayerDigest;
}

/**
 * Parses a stored manifest and checks that it is the one `digest` names and that it describes a layer at all: whoever chose the
 * name chose the text too. Throws `Internal`.
 */
export function parseManifest(text: string, digest: LayerDigest): LayerManifest {
  if (sha256Hex(text) !== hexOf(digest)) throw damagedLayer(digest, "manifest");
  const { metadata, blobs } = jsonObject(text) ?? {};
  if (isMetadata(metadata) && Array.isArray(blobs) && blobs.length <= MAX_DEVICES && blobs.every(isBlob)) {
    const found: LayerManifest = { version: 2, metadata, blobs };
    if (manifestText(found) === text) return found;
  }
  throw damagedLayer(digest, "manifest");
}

function isMetadata(value: unknown): value is LayerManifest["metadata"] {
  return isObject(value) && isByteCount(value.sizeBytes) && isHexDigest(value.sha256);
}

function isBlob(value: unknown): value is LayerBlob {
  return isObject(value) && isBlobDigest(value.digest) && isByteCount(value.sizeBytes);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

/** The error for a layer whose files are not what its name promises. */
export function damagedLayer(digest: LayerDigest, part: keyof typeof LAYER_FILES, cause?: unknown): SandboxError {
  return new SandboxError("Internal", `the ${part} of layer ${digest} is damaged in the store`, {
    cause,
    hint: "remove the artifacts that use the layer and import them again",
    details: { layer: digest, part },
  });
}
