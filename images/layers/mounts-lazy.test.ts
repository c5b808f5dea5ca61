import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, renameSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";
import type { LayerDigest } from "#core/sandbox.ts";
import { MECHANISMS, type Mechanism } from "#host/lazy/requests.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { BLOB_FILES } from "../blobs/descriptor.ts";
import { hexOf, sha256Hex } from "../digest.ts";
import { LazyRig } from "../lazy/test-support/rig.ts";
import { directoryStore } from "../store/directory.ts";
import { type LayerStore, openLayerStore } from "../store.ts";
import { archive, importBytes } from "../test-support/fixtures.ts";
import { type LayerMounts, openLayerMounts } from "./mounts.ts";

const run = promisify(execFile);
const MIB = 2 ** 20;
/** Different all over, so that no two chunks are one. */
const BODY = Buffer.concat(Array.from({ length: 8 }, (_, at) => Buffer.alloc(MIB / 2, sha256Hex(`part ${at}`))));

for (const mechanism of MECHANISMS) {
  describe(`layers whose data is away, over ${mechanism}`, () => {
    test("are mounted at once, show every byte, and say how much of them is here", async () => {
      await using rig = await openRig(mechanism);
      const [dir = ""] = await rig.mounts.acquire([rig.layer]);
      const mounted = await rig.report();
      assert.deepEqual([mounted.state, mounted.isMounted, mounted.presentBytes], ["lazy", true, 0]);
      assert.equal(await rig.hash(dir, "small"), sha256Hex("a few bytes"));
      const part = await rig.report();
      assert.ok(part.presentBytes > 0 && part.presentBytes < part.sizeBytes / 2, `${part.presentBytes} bytes`);
      assert.equal(await rig.hash(dir, "large"), sha256Hex(BODY));
      assert.equal((await rig.report()).state, "complete");
    });

    test("have whole files when all of their data has come, and not before", async () => {
      await using rig = await openRig(mechanism);
      const wholes = async () => (await rig.mounts.files(rig.layer)).map(({ isWhole }) => isWhole);
      assert.deepEqual(await wholes(), [true, false]);
      const [dir = ""] = await rig.mounts.acquire([rig.layer]);
      await rig.hash(dir, "small");
      assert.deepEqual(await wholes(), [true, false]);
      const [, data] = await rig.mounts.files(rig.layer);
      assert.ok((await readFile(data?.path ?? "")).includes(BODY), "who reads the file waits for every byte");
      assert.deepEqual(await wholes(), [true, true]);
    });

    test("survive the end of filler and node with readers waiting, who notice nothing", async () => {
      await using rig = await openRig(mechanism);
      const [dir = ""] = await rig.mounts.acquire([rig.layer]);
      renameSync(rig.lazy.storeDir, `${rig.lazy.storeDir}.away`);
      const reading = Promise.all([rig.hash(dir, "large"), rig.hash(dir, "small")]);
      await rig.waiting();
      process.kill(rig.lazy.node.pid, "SIGKILL");
      await rig.waiting();
      await rig.again();
      renameSync(`${rig.lazy.storeDir}.away`, rig.lazy.storeDir);
      assert.deepEqual(await reading, [sha256Hex(BODY), sha256Hex("a few bytes")]);
      assert.equal(rig.mounts.lost.size, 0);
    });

    test("are lost when filler and node end together, and the next mount shows every byte", async () => {
      await using rig = await openRig(mechanism);
      const [dir = ""] = await rig.mounts.acquire([rig.layer]);
      await rig.hash(dir, "small");
      await rig.lazy.abandon();
      await rig.killFiller();
      // Whoever reads now gets zeros or an error; nobody may believe them.
      await rig.hash(dir, "large").catch(() => undefined);
      await rig.again();
      assert.deepEqual([...rig.mounts.lost], [rig.layer]);
      // A node that dies before it has dealt with them knows it the next time, too.
      await rig.again();
      assert.deepEqual([...rig.mounts.lost], [rig.layer]);
      rig.mounts.forgetLost();
      await rig.again();
      assert.equal(rig.mounts.lost.size, 0);
      const [fresh = ""] = await rig.mounts.acquire([rig.layer]);
      assert.equal(await rig.hash(fresh, "large"), sha256Hex(BODY));
    });
  });
}

test("a layer in a shared directory is read in place, and nothing is copied", async () => {
  await using rig = await openRig("fanotify");
  await using objects = directoryStore(rig.lazy.storeDir);
  const remote = { objects, lazy: undefined };
  const mounts = await openLayerMounts({ store: rig.store, runDir: join(rig.lazy.dir, "other"), remote });
  const [dir = ""] = await mounts.acquire([rig.layer]);
  assert.equal(await rig.hash(dir, "large"), sha256Hex(BODY));
  const [report] = await mounts.report([rig.layer]);
  assert.deepEqual([report?.state, report?.presentBytes], ["in-place", report?.sizeBytes]);
  mounts.unmountAll();
});

async function openRig(mechanism: Mechanism): Promise<Rig> {
  const lazy = new LazyRig(mechanism);
  const store = await openLayerStore(join(lazy.dir, "images"));
  const bytes = archive({ path: "large", body: BODY }, { path: "small", body: "a few bytes" });
  const [layer = assert.fail("no layer")] = (await importBytes(store, bytes)).layers;
  for (const { digest } of (await store.manifest(layer)).blobs) {
    const dir = join(store.dir, "blobs", hexOf(digest));
    for (const name of Object.values(BLOB_FILES)) {
      await lazy.put(`blobs/${hexOf(digest)}/${name}`, readFileSync(join(dir, name)));
    }
    rmSync(dir, { recursive: true });
  }
  const rig = new Rig(lazy, store, layer);
  await rig.again();
  return rig;
}

/** A node's own store, which has only the metadata of a layer, and mounts over a store that has the rest. */
class Rig implements AsyncDisposable {
  readonly lazy: LazyRig;
  readonly store: LayerStore;
  readonly layer: LayerDigest;
  #mounts: LayerMounts | undefined;

  constructor(lazy: LazyRig, store: LayerStore, layer: LayerDigest) {
    this.lazy = lazy;
    this.store = store;
    this.layer = layer;
  }

  get mounts(): LayerMounts {
    assert.ok(this.#mounts);
    return this.#mounts;
  }

  /** Another node in the place of the one before, if there was one. */
  async again(): Promise<void> {
    await this.lazy.abandon();
    const node = await this.lazy.open();
    await using objects = directoryStore(this.lazy.storeDir);
    this.#mounts = await openLayerMounts({
      store: this.store,
      runDir: this.lazy.runDir,
      remote: { objects, lazy: node },
    });
  }

  /** Resolves when the filler answers: it has taken over what the one before had in hand. */
  async waiting(): Promise<void> {
    await this.lazy.node.report([]);
  }

  async killFiller(): Promise<void> {
    const record = JSON.parse(readFileSync(join(this.lazy.runDir, "lazy.json"), "utf8"));
    process.kill(record.pid, "SIGKILL");
    while (processStartTicks(record.pid) === record.startTicks) await immediate();
  }

  async report() {
    const [report = assert.fail("no report")] = await this.mounts.report([this.layer]);
    return report;
  }

  async hash(dir: string, name: string): Promise<string> {
    return (await run("sha256sum", [join(dir, name)])).stdout.slice(0, 64);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.mounts.unmountAll();
    this.store[Symbol.dispose]();
    await this.lazy[Symbol.asyncDispose]();
  }
}
