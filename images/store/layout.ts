import type { LayerDigest } from "#core/sandbox.ts";
import { BLOB_FILES } from "../descriptor.ts";
import { type BlobDigest, hexOf } from "../digest.ts";
import { LAYER_FILES } from "../manifest.ts";
import type { Reference } from "../reference.ts";

//   blobs/<hex>/data, chunks, blob.json            the file named last is put last and removed first:
//   layers/<hex>/metadata.erofs, manifest.json     what has it is whole
//   artifacts/<project>/<hex>                      what an artifact is
//   names/<project>/<name>/_tags/<tag>             what a tag means: no part of a name begins with _

/** Where a file of a blob lies in an object store. */
export function blobKey(digest: BlobDigest, file: keyof typeof BLOB_FILES): string {
  return `blobs/${hexOf(digest)}/${BLOB_FILES[file]}`;
}

/** Where a file of a layer lies in an object store. */
export function layerKey(digest: LayerDigest, file: keyof typeof LAYER_FILES): string {
  return `layers/${hexOf(digest)}/${LAYER_FILES[file]}`;
}

/** Where an object store says what an artifact is. */
export function artifactKey(project: string, digest: string): string {
  return `artifacts/${project}/${digest.slice("sha256:".length)}`;
}

/** Where an object store says what a tag means. */
export function nameKey(project: string, { name, tag }: Reference): string {
  return `names/${project}/${name}/_tags/${tag}`;
}
