import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { LayerDigest } from "#core/sandbox.ts";
import { erofsMounts, mountErofs } from "#host/mounts/erofs.ts";
import { parseLayerDigest } from "../digest.ts";
import type { LayerStore } from "../store.ts";
import { archive, importBytes, temporaryStore } from "../test-support/fixtures.ts";
import { type LayerMounts, openLayerMounts } from "./mounts.ts";

interface Rig extends Disposable {
  readonly store: LayerStore;
  readonly runDir: string;
  readonly mounts: LayerMounts;
  readonly digests: readonly LayerDigest[];
  /** Digests of what the kernel has mounted. */
  live(): readonly string[];
}

async function rig(layers: number): Promise<Rig> {
  const made = await temporaryStore();
  const runDir = join(made.path, "run, with a comma and a space");
  const mounts = await openLayerMounts({ store: made.store, runDir });
  const digests: LayerDigest[] = [];
  for (let index = 0; index < layers; index++) {
    digests.push(...(await importBytes(made.store, archive({ path: "name", body: `layer ${index}` }))).layers);
  }
  const dir = join(runDir, "layers");
  return {
    store: made.store,
    runDir,
    mounts,
    digests,
    live: () => erofsMounts(dir).map(({ target }) => `sha256:${target.slice(dir.length + 1)}`),
    [Symbol.dispose]() {
      mounts.unmountAll();
      made[Symbol.dispose]();
    },
  };
}

describe("layer mounts", () => {
  test("give the directories of layers in the order asked for", async () => {
    using made = await rig(3);
    const directories = await made.mounts.acquire(made.digests);
    const found = directories.map((path) => readFileSync(join(path, "name"), "utf8"));
    assert.deepEqual(found, ["layer 0", "layer 1", "layer 2"]);
  });

  test("mount a layer once however many ask for it at the same time", async () => {
    using made = await rig(4);
    await Promise.all(Array.from({ length: 40 }, () => made.mounts.acquire(made.digests)));
    assert.deepEqual([...made.live()].sort(), [...made.digests].sort());
  });

  test("fail for a layer that is missing or cut short, without keeping anything, and succeed later", async () => {
    using made = await rig(1);
    const unknown = parseLayerDigest(`sha256:${"f".repeat(64)}`);
    await assert.rejects(made.mounts.acquire([unknown]), { kind: "NotFound" });
    assert.deepEqual(made.live(), []);
    assert.equal((await made.mounts.acquire(made.digests)).length, 1);
  });

  test("are found again by the next process of the node, and are not mounted twice", async () => {
    using made = await rig(2);
    const before = await made.mounts.acquire(made.digests);
    const adopted = await openLayerMounts({ store: made.store, runDir: made.runDir });
    assert.deepEqual(new Set(adopted.mounted.keys()), new Set(made.digests));
    assert.deepEqual(await adopted.acquire(made.digests), before);
    assert.equal(made.live().length, 2);
  });

  test("of another store are replaced, and directories without a mount are cleared", async () => {
    using made = await rig(1);
    using other = await rig(1);
    const [digest = assert.fail("no layer")] = made.digests;
    const target = join(made.runDir, "layers", digest.slice("sha256:".length));
    mkdirSync(target);
    mkdirSync(join(made.runDir, "layers", "0".repeat(64)));
    mountErofs({ ...(await other.store.paths(digest)), target });
    const mounts = await openLayerMounts({ store: made.store, runDir: made.runDir });
    assert.equal(mounts.mounted.size, 0);
    assert.deepEqual(readdirSync(join(made.runDir, "layers")), []);
  });

  test("through loop devices are adopted too", async () => {
    using made = await rig(1);
    const [digest = assert.fail("no layer")] = made.digests;
    const target = join(made.runDir, "layers", digest.slice("sha256:".length));
    mkdirSync(target);
    mountErofs({ ...(await made.store.paths(digest)), target }, "loop");
    const adopted = await openLayerMounts({ store: made.store, runDir: made.runDir });
    assert.deepEqual(new Set(adopted.mounted.keys()), new Set(made.digests));
    adopted.unmountAll();
    assert.deepEqual(made.live(), []);
  });

  test("that nothing uses go away with their directories, the others stay", async () => {
    using made = await rig(3);
    const [kept = assert.fail("no layer"), dropped = assert.fail("no layer")] = made.digests;
    const directories = await made.mounts.acquire(made.digests);
    made.mounts.unmountUnused(new Set([kept]));
    assert.deepEqual(made.live(), [kept]);
    assert.deepEqual(
      directories.map((path) => existsSync(path)),
      [true, false, false],
    );
    await made.mounts.acquire([dropped]);
    assert.equal(made.live().length, 2);
    made.mounts.unmountAll();
    assert.deepEqual(made.live(), []);
    assert.deepEqual(readdirSync(join(made.runDir, "layers")), []);
  });

  test("go on serving open files after their layer left the store", async () => {
    using made = await rig(1);
    const [directory = assert.fail("no directory")] = await made.mounts.acquire(made.digests);
    for (const digest of made.digests) await made.store.remove(digest);
    assert.equal(readFileSync(join(directory, "name"), "utf8"), "layer 0");
  });
});
