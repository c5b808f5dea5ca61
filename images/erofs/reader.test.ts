import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import fc from "fast-check";
import { mergeTrees } from "../layers/merge.ts";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { importDirectory } from "../test-support/import-directory.ts";
import { makeNastyTree } from "../test-support/nasty-tree.ts";
import { Inode } from "./inode.ts";
import { NotOurImage, readImage } from "./reader.ts";
import { draftImage } from "./writer.ts";

/** The image of a nasty tree, and what its devices are. */
async function nastyImage(): Promise<{
  readonly image: Buffer;
  readonly tags: readonly string[];
  readonly blocks: number;
}> {
  using source = temporaryDirectory();
  using made = await temporaryStore();
  makeNastyTree(source.path);
  const { layers } = await importDirectory(source.path, { store: made.store });
  const digest = layers[0] ?? assert.fail("no layer");
  const [blob = assert.fail("no blob")] = (await made.store.manifest(digest)).blobs;
  const tags = [blob.digest.slice("sha256:".length)];
  return { image: readFileSync(made.store.metadataPath(digest)), tags, blocks: blob.sizeBytes / 4096 };
}

function directory(children: Map<string, Inode>): Inode {
  const attributes = { mode: 0o755, uid: 0, gid: 0, mtimeS: 0, mtimeNs: 0, xattrs: undefined };
  return new Inode(attributes, { type: "directory", children });
}

describe("reading a metadata image", () => {
  test("gives the tree that the writer makes the same image of, byte for byte", async () => {
    const { image, tags, blocks } = await nastyImage();
    const root = readImage(image, (tag) => tags.indexOf(tag) + 1);
    const again = (await draftImage(root)).finish([{ tag: tags[0] ?? "", blocks }], [0, 1]);
    assert.ok(again.equals(image));
  });

  test("of any damaged image ends with a tree or a refusal, never with more than the image holds", async () => {
    const { image } = await nastyImage();
    // What lies behind the room for devices decides about the tree.
    const place = fc.oneof(
      fc.nat(image.length - 1),
      fc.integer({ min: 16_384, max: Math.min(image.length, 30_000) - 1 }),
    );
    const damage = fc.array(fc.tuple(place, fc.nat(255)), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(damage, fc.option(fc.nat(image.length)), (bytes, length) => {
        const copy = Buffer.from(image).subarray(0, length ?? image.length);
        for (const [at, value] of bytes) if (at < copy.length) copy[at] = value;
        try {
          readImage(copy, () => 1);
        } catch (error) {
          assert.ok(error instanceof NotOurImage, String(error));
        }
      }),
      { numRuns: 400 },
    );
  });

  test("and merging and writing it know no depth: a tree far past the longest path", async () => {
    const depth = 20_000;
    const deep = (): Inode => {
      let inode = directory(new Map());
      for (let level = 0; level < depth; level++) inode = directory(new Map([["d", inode]]));
      return inode;
    };
    const first = (await draftImage(deep())).finish([], [0]);
    const merged = mergeTrees(
      readImage(first, () => 1),
      readImage(first, () => 1),
    );
    const again = (await draftImage(merged)).finish([], [0]);
    assert.ok(again.equals(first));
  });

  test("refuses directories that contain each other and listings that are shared", async () => {
    const inner = directory(new Map());
    const image = (await draftImage(directory(new Map([["a", directory(new Map([["b", inner]]))]])))).finish([], [0]);
    const at = image.indexOf("...b", 16_384);
    // The last entry of the listing is "b": its inode becomes the root.
    image.writeUInt32LE(512, at + 3 - 3 * 12);
    for (const nid of [512, 514]) {
      const copy = Buffer.from(image);
      copy.writeUInt32LE(nid, at - 12);
      assert.throws(() => readImage(copy, () => 1), NotOurImage);
    }
  });
});
