import type { LayerDigest } from "#core/sandbox.ts";
import { BLOB_FILES } from "../blobs/descriptor.ts";
import { type BlobDigest, hexOf } from "../digest.ts";
import { LAYER_FILES } from "../manifest.ts";
import type { Reference } from "../reference.ts";

//   blobs/<hex>/data, chunks, blob.json            the file named last is put last and removed first:
//   layers/<hex>/metadata.erofs, manifest.json     what has it is whole
//   blobs/<hex>/frames-<hex>, frames.json          in place of data, where it is fetched: see frames.ts
//   layers/<hex>/metadata.erofs.zst                the same of metadata.erofs
//   artifacts/<project>/<hex>                      what an artifact is
//   names/<project>/<name>/_tags/<tag>             what a tag means: no part of a name begins with _
//   pins/<node>/alive                              put again by a node that still is one
//   pins/<node>/<thing>, …/<thing>/<use>           what it needs: a thing is layers/<hex> or artifacts/<project>/<hex>
//   chosen/<thing>/<collection>                    what a collection is about to remove; blobs/<hex>, too

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

/** What a store holds and a collection removes: the directory of a blob or a layer, or the record of an artifact. */
export type Thing = string & { readonly thing: unique symbol };

/** The layer as a thing. */
export function layerThing(digest: LayerDigest): Thing {
  return `layers/${hexOf(digest)}` as Thing;
}

/** The blob as a thing. */
export function blobThing(digest: BlobDigest): Thing {
  return `blobs/${hexOf(digest)}` as Thing;
}

/** The record of an artifact as a thing. */
export function artifactThing(project: string, digest: string): Thing {
  return artifactKey(project, digest) as Thing;
}

/** The thing that a key is, or is a file of; `undefined` for other keys. */
export function thingOf(key: string): Thing | undefined {
  return /^(?:(?:layers|blobs)\/[0-9a-f]{64}|artifacts\/[^/]+\/[0-9a-f]{64})/.exec(key)?.[0] as Thing | undefined;
}

/** Where a node says that it is there. */
export function aliveKey(node: string): string {
  return `pins/${node}/alive`;
}

/** Where a node says that it needs a thing; `use` tells uses of one thing apart. */
export function pinKey(node: string, thing: Thing, use?: string): string {
  return `pins/${node}/${thing}${use === undefined ? "" : `/${use}`}`;
}

/** Where a collection says that it is about to remove a thing. */
export function chosenKey(thing: Thing, collection: string): string {
  return `chosen/${thing}/${collection}`;
}
