import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { LayerDigest } from "#core/sandbox.ts";
import type { TreeEntry } from "#core/tar/entry.ts";
import { mount, unmount } from "#host/sys/mount.ts";
import type { Inode } from "../erofs/inode.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import type { LayerStore } from "../store.ts";
import { archive, importBytes, temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { fsck, mounted, snapshot } from "../test-support/inspect.ts";
import { collapseLayers } from "./collapse.ts";
import { buildLayer } from "./layer.ts";
import { mergeTrees } from "./merge.ts";
import { readParts, readTree, writeTree } from "./retree.ts";
import { isOpaque, isWhiteout, markOpaque, OPAQUE_XATTR, whiteout } from "./whiteouts.ts";

/** What one layer does with a path; a later one for the same path wins. */
type Step =
  | { readonly type: "file" | "symlink" | "whiteout"; readonly path: string; readonly text: string }
  | { readonly type: "directory"; readonly path: string; readonly opaque: boolean; readonly mode: number }
  | { readonly type: "link"; readonly path: string; readonly target: string };

const ANY_SIZE = 2 ** 40;

const NAMES = ["a", "b", "c"];
const path = fc.array(fc.constantFrom(...NAMES), { minLength: 1, maxLength: 3 }).map((parts) => parts.join("/"));
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ type: fc.constantFrom("file" as const, "symlink" as const, "whiteout" as const), path, text: path }),
  fc.record({
    type: fc.constant("directory" as const),
    path,
    opaque: fc.boolean(),
    mode: fc.constantFrom(0o700, 0o755, 0o1777),
  }),
  fc.record({ type: fc.constant("link" as const), path, target: path }),
);
const layer = fc.array(step, { maxLength: 12 });

const PLAIN = {
  mode: 0o644,
  uid: 7,
  gid: 8,
  mtimeS: 1,
  mtimeNs: 5,
  xattrs: undefined,
  size: 0,
  target: "",
  major: 0,
  minor: 0,
};
const OPAQUE = new Map([["trusted.overlay.opaque", Buffer.from("y")]]);

function entryOf(step: Step): TreeEntry {
  const { path } = step;
  switch (step.type) {
    case "file":
      return { ...PLAIN, path, type: "file", size: step.text.length };
    case "symlink":
      return { ...PLAIN, path, type: "symlink", target: step.text };
    case "whiteout":
      return { ...PLAIN, path, type: "character-device" };
    case "directory":
      return { ...PLAIN, path, type: "directory", mode: step.mode, xattrs: step.opaque ? OPAQUE : undefined };
    default:
      return { ...PLAIN, path, type: "link", target: step.target };
  }
}

/** A layer of the steps that a tree can take: what lies beneath a file, or links to nothing, is left out. */
async function layerOf(store: LayerStore, steps: readonly Step[]): Promise<LayerDigest> {
  const options = { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  const built = await buildLayer(options, async ({ builder }) => {
    for (const step of steps) {
      try {
        builder.entry(entryOf(step));
      } catch {
        continue;
      }
      if (step.type === "file") builder.data(Buffer.from(step.text));
    }
  });
  return built.digest;
}

/** What an overlay of the layers shows. */
async function shown(store: LayerStore, layers: readonly LayerDigest[]): Promise<ReadonlyMap<string, string>> {
  using stack = new DisposableStack();
  const directories = [stack.use(temporaryDirectory()).path];
  for (const digest of layers) directories.push(stack.use(await mounted(store, digest)).path);
  const target = stack.use(temporaryDirectory()).path;
  mount("overlay", target, "overlay", 0, `lowerdir=${directories.reverse().join(":")}`);
  try {
    // Names that another layer took from a file still count for it in an overlay.
    return snapshot(target, { withCounts: false });
  } finally {
    unmount(target);
  }
}

type Collapse = (store: LayerStore, layers: readonly LayerDigest[]) => Promise<readonly LayerDigest[]>;

/** Whether what `collapse` makes of some layers shows the same as those, between any others. */
function showsTheSame(collapse: Collapse): fc.IAsyncPropertyWithHooks<[[Step[], Step[][], Step[]]]> {
  const stacks = fc.tuple(layer, fc.array(layer, { minLength: 2, maxLength: 4 }), layer);
  return fc.asyncProperty(stacks, async ([below, parts, above]) => {
    using made = await temporaryStore();
    const bottom = await layerOf(made.store, below);
    const middle: LayerDigest[] = [];
    for (const steps of parts) middle.push(await layerOf(made.store, steps));
    const top = await layerOf(made.store, above);
    const unlike = new Set([bottom, ...middle, top]);
    // An overlay refuses one directory twice.
    fc.pre(unlike.size === parts.length + 2);
    const [merged = assert.fail("no layer"), ...more] = await collapse(made.store, middle);
    assert.deepEqual(more, []);
    fc.pre(!unlike.has(merged));
    await made.store.verify(merged);
    await fsck(made.store, merged);
    assert.deepEqual(await shown(made.store, [bottom, merged, top]), await shown(made.store, [bottom, ...middle, top]));
  });
}

/** What can be got wrong with one merged inode, in a directory of that name. */
type Mistake = (directory: Inode, name: string, inode: Inode) => void;

const MISTAKES: Readonly<Record<string, Mistake>> = {
  "lose deletions": (directory, name, inode) => {
    if (isWhiteout(inode) && directory.content.type === "directory") directory.content.children.delete(name);
  },
  "show again what an opaque directory hid": (_, __, inode) => {
    const xattrs = new Map([...(inode.attributes.xattrs ?? [])].filter(([key]) => key !== OPAQUE_XATTR));
    if (isOpaque(inode)) inode.attributes = { ...inode.attributes, xattrs };
  },
  "hide what lies below every directory": (_, __, inode) => {
    if (inode.content.type === "directory") markOpaque(inode);
  },
  "delete what they should have": (directory, name, inode) => {
    if (inode.content.type === "symlink" && directory.content.type === "directory") {
      directory.content.children.set(name, whiteout());
    }
  },
};

/** As `collapseLayers` merges, with one mistake, made everywhere. */
async function mergedWrongly(store: LayerStore, layers: readonly LayerDigest[], breakIt: Mistake) {
  const parts = await readParts(store, layers);
  const blobs = [
    ...new Map(parts.flatMap(({ manifest }) => manifest.blobs).map((blob) => [blob.digest, blob])).values(),
  ];
  const trees: Inode[] = [];
  for (const part of parts) trees.push(await readTree(store, part, blobs));
  const root = trees.reduce((lower, upper) => mergeTrees(lower, upper));
  const waiting = [root];
  for (const directory of waiting) {
    if (directory.content.type !== "directory") continue;
    for (const [name, inode] of [...directory.content.children]) {
      breakIt(directory, name, inode);
      if (inode.content.type === "directory") waiting.push(inode);
    }
  }
  return [await writeTree(store, root, blobs)];
}

describe("collapsed layers", () => {
  test("show what their parts show, over and under other layers: any trees, whiteouts, opaque directories, hard links", async () => {
    await fc.assert(
      showsTheSame((store, layers) => collapseLayers(store, layers, ANY_SIZE)),
      { numRuns: 30 },
    );
  });

  for (const [what, breakIt] of Object.entries(MISTAKES)) {
    test(`that ${what} are found out by the test above`, async () => {
      const broken = (store: LayerStore, layers: readonly LayerDigest[]) => mergedWrongly(store, layers, breakIt);
      const { errorInstance } = await fc.check(showsTheSame(broken), { numRuns: 300, seed: 1, endOnFailure: true });
      assert.ok(errorInstance instanceof assert.AssertionError, String(errorInstance));
    });
  }

  test("copy nothing, keep out blobs that nothing needs any more, and are made the same again", async () => {
    using made = await temporaryStore();
    const layers: LayerDigest[] = [];
    for (const text of ["first", "second", "third"]) {
      const { layers: own } = await importBytes(
        made.store,
        archive({ path: "same", body: text }, { path: text, body: "x" }),
      );
      layers.push(...own);
    }
    const before = await made.store.blobs.list();
    const [digest = assert.fail("no layer"), ...more] = await collapseLayers(made.store, layers, ANY_SIZE);
    assert.deepEqual(more, []);
    assert.deepEqual(await made.store.blobs.list(), before);
    assert.equal((await made.store.manifest(digest)).blobs.length, 2);
    assert.deepEqual(await collapseLayers(made.store, layers, ANY_SIZE), [digest]);
    using found = await mounted(made.store, digest);
    assert.equal(readFileSync(join(found.path, "same"), "utf8"), "third");
  });

  test("are as many as the size asks for, each of neighbours", async () => {
    using made = await temporaryStore();
    const layers: LayerDigest[] = [];
    for (const size of [10, 10, 300, 10, 10, 10]) {
      const body = Buffer.alloc(size * 4096, `${layers.length},`);
      layers.push(...(await importBytes(made.store, archive({ path: `f${layers.length}`, body }))).layers);
    }
    const collapsed = await collapseLayers(made.store, layers, 100 * 4096);
    assert.equal(collapsed.length, 3);
    assert.equal(collapsed[1], layers[2]);
    assert.deepEqual(await collapseLayers(made.store, layers, 0), layers);
    assert.deepEqual(await shown(made.store, collapsed), await shown(made.store, layers));
  });

  test("of an image of 60 layers mount, as its parts do", async () => {
    using made = await temporaryStore();
    const layers: LayerDigest[] = [];
    for (let index = 0; index < 60; index++) {
      const body = `layer ${index}`;
      layers.push(
        ...(await importBytes(made.store, archive({ path: "top", body }, { path: `d/${index}`, body }))).layers,
      );
    }
    const collapsed = await collapseLayers(made.store, layers, ANY_SIZE);
    assert.equal(collapsed.length, 1);
    assert.deepEqual(await shown(made.store, collapsed), await shown(made.store, layers));
  });

  test("list no deletion of what nobody below has, and neither do their parts", async () => {
    using made = await temporaryStore();
    const upper = await layerOf(made.store, [
      { type: "whiteout", path: "a/b", text: "" },
      { type: "file", path: "a/c", text: "c" },
    ]);
    const lower = await layerOf(made.store, [{ type: "file", path: "b", text: "b" }]);
    const collapsed = await collapseLayers(made.store, [lower, upper], ANY_SIZE);
    for (const layers of [[lower, upper], collapsed]) {
      assert.deepEqual([...(await shown(made.store, layers)).keys()], ["", "/a", "/a/c", "/b"]);
    }
  });

  test("of a damaged part are not made", async () => {
    using made = await temporaryStore();
    const steps = [[{ type: "file", path: "a", text: "1" }], [{ type: "file", path: "a", text: "2" }]] as const;
    const layers = [await layerOf(made.store, steps[0]), await layerOf(made.store, steps[1])];
    const [victim = assert.fail("no layer")] = layers;
    writeFileSync(made.store.metadataPath(victim), "no image");
    await assert.rejects(collapseLayers(made.store, layers, ANY_SIZE), {
      kind: "Internal",
      details: { layer: victim, part: "metadata" },
    });
  });
});
